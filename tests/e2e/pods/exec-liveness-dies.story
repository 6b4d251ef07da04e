containers:
  main:
  - {lives: [7, 13], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [7, 13], exit: 0, reason: Completed}
  - {after: [0, 3], running: true}
pod: {phase: Running}
events: {Killing: 2}
