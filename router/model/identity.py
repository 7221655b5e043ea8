"""Types for numbers and names, so that the type checker tells them apart."""

from typing import NewType

ContainerId = NewType("ContainerId", str)
"""Name of a container (§2.4.1, open.container-id)."""

ConnectionId = NewType("ConnectionId", int)
"""A connection, unique in its worker for the worker's lifetime."""

LinkId = NewType("LinkId", int)
"""A link endpoint of ours, unique in its worker over all its connections. Not a handle."""

LinkName = NewType("LinkName", str)
"""Name of a link, unique per pair of containers and role (§2.6.1)."""

DeliveryTag = NewType("DeliveryTag", bytes)
"""Names a delivery among the unsettled ones of its link, 1 to 32 octets (§2.6.12)."""

DeliveryNumber = NewType("DeliveryNumber", int)
"""A delivery on one link: assigned by the engine for incoming, by the core for outgoing ones."""

DeliveryKey = NewType("DeliveryKey", bytes)
"""16 octets that name a delivery from its first ingress to its last hop, in every ledger."""
