containers:
  main: [{lives: [0, 5], exit: 0, reason: Completed}]
states: ["main: terminated Completed, started false, ready false: 65536\n1777"]
pod: {phase: Succeeded}
