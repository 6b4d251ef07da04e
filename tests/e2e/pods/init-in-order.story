order: [first, second, main]
containers:
  first: [{lives: [0, 3], exit: 0, reason: Completed}]
  second: [{lives: [0, 3], exit: 0, reason: Completed}]
  main: [{running: true}]
pod: {phase: Running, ready: true}
