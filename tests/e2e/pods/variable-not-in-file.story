containers:
  init: [{exit: 0}]
never: [main]
waiting: {main: CreateContainerConfigError}
pod: {phase: Pending, ready: false}
