containers:
  main:
  - {lives: [0, 3], exit: 42, reason: Error}
  - {after: [0, 3], lives: [0, 3], exit: 9, reason: Error}
pod: {phase: Failed}
