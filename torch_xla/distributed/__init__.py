"""Several replicas: starting them, feeding them, letting them talk. This process is one of one."""
