containers: {}
never: [main]
pod: {phase: Failed}
states:
- "phase Failed SysctlForbidden: Pod was rejected: forbidden sysctl: \"net.ipv4.ip_forward\" not allowlisted"
events: {SysctlForbidden: 1}
