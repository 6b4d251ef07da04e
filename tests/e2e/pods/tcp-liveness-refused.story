containers:
  main:
  - {lives: [3, 9], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [3, 9], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [3, 9], exit: 0, reason: Completed}
pod: {phase: Running}
events: {Killing: 3}
