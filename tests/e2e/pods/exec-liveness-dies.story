containers:
  main:
  - {lives: [10, 16], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [10, 16], exit: 0, reason: Completed}
  - {after: [0, 3], running: true}
pod: {phase: Running}
events: {Killing: 2}
