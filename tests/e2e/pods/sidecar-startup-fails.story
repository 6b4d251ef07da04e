containers:
  side:
  - {lives: [2, 7], exit: 0, reason: Completed}
  - {after: [0, 3], lives: [2, 7], exit: 0, reason: Completed}
never: [main]
pod: {phase: Pending, ready: false}
