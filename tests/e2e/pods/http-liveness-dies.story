containers:
  main:
  - {lives: [8, 14]}
  - {after: [0, 3], running: true}
pod: {phase: Running}
