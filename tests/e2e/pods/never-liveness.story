containers:
  main: [{lives: [2, 7], exit: 0, reason: Completed}]
pod: {phase: Succeeded}
