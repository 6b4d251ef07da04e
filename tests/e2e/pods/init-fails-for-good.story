containers:
  first: [{lives: [2, 5], exit: 4, reason: Error}]
never: [main]
pod: {phase: Failed}
