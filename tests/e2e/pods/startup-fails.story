containers:
  main:
  - {lives: [4, 9], exit: 0, reason: Completed}
  - {after: [0, 3], running: true}
pod: {phase: Running, ready: false}
events: {Killing: 1}
