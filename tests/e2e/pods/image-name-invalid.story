containers:
  other: [{running: true}]
never: [main]
waiting: {main: InvalidImageName}
pod: {phase: Pending, ready: false}
events: {InspectFailed: 1}
