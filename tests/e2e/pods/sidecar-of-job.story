order: [side, main]
containers:
  main: [{lives: [2, 5], exit: 0, reason: Completed}]
  side: [{lives: [2, 10], exit: 0, reason: Completed}]
pod: {phase: Succeeded}
