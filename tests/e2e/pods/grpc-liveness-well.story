lasts: 15
containers:
  main: [{running: true}]
pod: {phase: Running, ready: true}
