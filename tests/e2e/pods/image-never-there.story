lasts: 6
never: [main]
waiting: {main: ErrImageNeverPull}
pod: {phase: Pending, ready: false}
events: {ErrImageNeverPull: 1}
