"""Floor 1: the protocols, as machines that never do I/O."""
