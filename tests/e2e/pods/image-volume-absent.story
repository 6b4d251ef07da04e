never: [main]
containers:
  other: [{running: true}]
waiting: {main: ImagePullBackOff}
pod: {phase: Pending, ready: false}
events: {Failed: 2, BackOff: 1}
