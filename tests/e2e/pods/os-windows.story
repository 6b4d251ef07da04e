containers: {}
never: [main]
pod: {phase: Failed}
states:
- "phase Failed PodOSNotSupported: Pod was rejected: Failed to admit pod as the OS field doesn't match node OS"
events: {PodOSNotSupported: 1}
