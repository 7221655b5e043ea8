"""Floor 5: the commands of the program ``router``."""
