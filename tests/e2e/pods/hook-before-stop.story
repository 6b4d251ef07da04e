containers:
  main:
  - {lives: [3, 9], exit: 0, reason: Completed}
  - {after: [0, 3], running: true}
pod: {phase: Running}
