order: [one, two, main]
containers:
  one: [{running: true}]
  two: [{running: true}]
  main: [{running: true}]
pod: {phase: Running, ready: true}
