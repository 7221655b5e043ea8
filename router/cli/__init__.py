"""Floor 5: verbs for people."""
