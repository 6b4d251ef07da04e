containers:
  main:
  - {lives: [0, 3], exit: 0, reason: Completed}
  - {after: [0, 20], lives: [0, 3], exit: 0, reason: Completed}
pod: {phase: Running}
