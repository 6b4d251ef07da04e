containers:
  main: [{running: true}]
  other: [{running: true}]
pod: {phase: Running, ready: true}
