containers:
  main: [{lives: [1, 4], exit: 0, reason: Completed}]
pod: {phase: Succeeded, ready: false}
