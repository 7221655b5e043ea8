"""Floor 1: the protocols, as machines without I/O."""
