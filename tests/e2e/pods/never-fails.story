containers:
  main: [{lives: [1, 4], exit: 5, reason: Error}]
pod: {phase: Failed, ready: false}
