lasts: 25
containers:
  main:
  - {lives: [0, 7], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [0, 7], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [0, 7], exit: 0, reason: Completed, last: true}
  other: [{running: true}]
pod: {phase: Running, ready: false}
events: {Killing: 3, BackOff: 1}
