"""Floor 2: where connections meet. Pure and synchronous: events in, orders out."""
