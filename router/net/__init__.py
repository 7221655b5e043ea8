"""Floor 3: sockets. Listeners, connectors, and the data plane of a worker."""
