"""Other engines on the same work: each runs in a process of its own and speaks `protocol`."""
