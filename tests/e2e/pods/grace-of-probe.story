containers:
  main:
  - {lives: [3, 9], exit: 137, reason: Error}
  - {after: [0, 3], running: true}
pod: {phase: Running}
