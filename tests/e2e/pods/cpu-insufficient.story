containers: {}
never: [main]
pod: {phase: Failed}
events: {UnexpectedAdmissionError: 1}
