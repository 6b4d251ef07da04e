containers:
  main:
  - {lives: [1, 7], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [1, 7], exit: 0, reason: Completed}
pod: {phase: Running}
