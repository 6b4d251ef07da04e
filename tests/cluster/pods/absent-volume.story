never: [main]
waiting: {main: ContainerCreating}
pod: {phase: Pending, ready: false}
events: {FailedMount: 1}
