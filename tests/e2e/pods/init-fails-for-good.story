containers:
  first: [{lives: [0, 3], exit: 4, reason: Error}]
never: [main]
pod: {phase: Failed}
