containers: {}
never: [main]
pod: {phase: Failed}
states:
- "phase Failed NodeAffinity: Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
events: {NodeAffinity: 1}
