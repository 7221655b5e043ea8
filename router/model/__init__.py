"""Floor 0: the nouns that every other floor uses."""
