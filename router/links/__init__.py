"""Floor 1: links, their unsettled deliveries, credit, recovery. Pure; knows no routes."""
