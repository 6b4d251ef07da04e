containers:
  main: [{lives: [1, 20], exit: 0, reason: Completed}]
  other: [{lives: [1, 20], exit: 3, reason: Error}]
pod: {phase: Failed, ready: false}
events: {DeadlineExceeded: 1}
