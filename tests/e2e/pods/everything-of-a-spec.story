containers:
  main: [{running: true}]
  privileged: [{running: true}]
pod: {phase: Running, ready: true}
