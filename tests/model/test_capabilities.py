"""What connections can do."""

import attrs

from router.model.capabilities import Capabilities, Protocol, shared


def test_connections_that_can_do_the_same_share_one_record() -> None:
    one = Capabilities(protocol=Protocol.AMQP_1_0, frame_octets=512)
    assert shared(attrs.evolve(one)) is shared(attrs.evolve(one))
    assert shared(attrs.evolve(one, frame_octets=1024)).frame_octets == 1024
