order: [first, second, main]
containers:
  first: [{lives: [2, 5], exit: 0, reason: Completed}]
  second: [{lives: [2, 5], exit: 0, reason: Completed}]
  main: [{running: true}]
pod: {phase: Running, ready: true}
