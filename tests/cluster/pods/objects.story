objects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: e2e}, data: {mode: fast, mode.txt: slow}}
- {apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: e2e}, data: {token: Zmlyc3Q=}}
containers:
  main: [{lives: [0, 5], exit: 0, reason: Completed}]
never: [waits, lacks]
waiting: {waits: CreateContainerConfigError, lacks: CreateContainerConfigError}
pod: {phase: Pending, ready: false}
