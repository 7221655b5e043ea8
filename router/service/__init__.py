"""Floor 4: what runs the router: configuration, workers, supervision, control."""
