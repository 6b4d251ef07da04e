never: [main]
pod: {phase: Pending, ready: false}
