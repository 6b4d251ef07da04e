lasts: 14
containers:
  main: [{running: true}]
pod: {phase: Running, ready: true, readyAfter: [5, 10]}
