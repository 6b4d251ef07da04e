containers:
  main:
  - {lives: [0, 3], exit: 7, reason: Error}
  - {after: [0, 3], lives: [0, 3], exit: 0, reason: Completed}
pod: {phase: Succeeded}
