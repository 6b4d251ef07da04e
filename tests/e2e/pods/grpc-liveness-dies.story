containers:
  main:
  - {lives: [2, 8]}
  - {after: [0, 3], running: true}
pod: {phase: Running}
