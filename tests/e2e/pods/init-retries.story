order: [first, main]
containers:
  first:
  - {lives: [0, 3], exit: 4, reason: Error}
  - {after: [0, 3], lives: [0, 3], exit: 0, reason: Completed}
  main: [{running: true}]
pod: {phase: Running, ready: true}
