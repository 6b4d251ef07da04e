do: [{container: main, crictl: [stopp]}]
pod: {phase: Failed, ready: false}
