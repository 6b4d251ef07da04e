containers:
  main: [{running: true}]
  bound: [{running: true}]
pod: {phase: Running, ready: true}
