containers:
  main:
  - {lives: [1, 4], exit: 3, reason: Error}
  - {after: [0, 3], lives: [1, 4], exit: 3, reason: Error}
  - {after: [10, 18], lives: [1, 4], exit: 3, reason: Error}
  - {after: [20, 34], lives: [1, 4], exit: 3, reason: Error}
pod: {phase: Running, ready: false}
events: {BackOff: 1}
