do: [{container: main, crictl: [rm, -f]}]
containers:
  other: [{running: true}]
states: ['main: last ContainerStatusUnknown 137: The container could not be located when the pod was deleted.  The container used to be Running']
pod: {phase: Running, ready: true}
