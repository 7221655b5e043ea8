"""Floor 1: which way an address goes, to how many, and what that way really promises. Pure."""
