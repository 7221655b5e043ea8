"""Floor 1: which route an address takes, its distribution, and its real guarantee. Pure."""
