containers:
  main:
  - {lives: [1, 5], exit: 42, reason: Error}
  - {after: [0, 8], running: true}
  other:
  - {lives: [1, 9]}
  - {after: [0, 8], running: true}
pod: {phase: Running, ready: true}
