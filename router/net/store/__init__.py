"""The message store as the core sees it: a container with links, behind an engine of its own."""
