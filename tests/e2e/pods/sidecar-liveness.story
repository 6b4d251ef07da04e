order: [side, main]
containers:
  side:
  - {lives: [10, 16], exit: 0, reason: Completed}
  - {after: [0, 3], running: true}
  main: [{running: true}]
pod: {phase: Running}
