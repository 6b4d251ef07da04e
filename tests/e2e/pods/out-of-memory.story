containers:
  main: [{lives: [2, 12], exit: 137, reason: OOMKilled}]
pod: {phase: Failed, ready: false}
