do: [{container: main, crictl: [rmp, -f]}]
containers:
  main: [{running: true}]
pod: {phase: Running, ready: true}
