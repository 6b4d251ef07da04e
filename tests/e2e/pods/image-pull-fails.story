never: [main]
waiting: {main: ImagePullBackOff}
pod: {phase: Pending, ready: false}
events: {Failed: 2, BackOff: 1}
