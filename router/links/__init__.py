"""Floor 1: links, what is unsettled on them, credit, recovery. Pure; knows no routes."""
