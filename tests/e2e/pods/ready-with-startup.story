lasts: 10
containers:
  main: [{running: true}]
pod: {phase: Running, ready: true, readyAfter: [3, 9]}
