containers: {}
never: [main]
pod: {phase: Failed}
states:
- "phase Failed NodePorts: Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
events: {NodePorts: 1}
after: port-held
