containers:
  main:
  - {lives: [6, 11], exit: 0, reason: Completed}
  - {after: [0, 3], running: true}
pod: {phase: Running}
events: {Killing: 1}
