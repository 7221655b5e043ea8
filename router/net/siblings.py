"""Connections between the workers of one router: AMQP 1.0 like all others, over a Unix socket.

The supervisor makes the socket pair, so only a sibling can be at the other end: there is no SASL,
and router annotations are trusted. Each worker is a container of its own, named after the router.
"""

from typing import Final

import attrs

from router.wire.engine import Engine, EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import Express

LINKS_MOST: Final = 1 << 20
"""Between two workers: one for each address that needs the other."""

WINDOW_FRAMES: Final = 1 << 14
"""All links of a joint share one session's window, and many may be busy."""

FRAME_OCTETS: Final = 1 << 28
"""The largest frame between two workers: peers' attaches lead through, with their unsettled maps.

What a peer may send of those is bounded where it sends them; and what links of other protocols have
unsettled, which may be much, is told in one frame.
"""

TYPICAL_FRAME_OCTETS: Final = 1 << 16
"""No other frames are larger, unless peers may send larger ones: an advertisement or an attach with
the longest address has to fit one.
"""


def make_sibling_engine(settings: EngineSettings, number: int, express: Express | None) -> Engine:
    """Makes our engine of a connection to another worker.

    Args:
        settings: the settings of all engines of the worker.
        number: our own.
        express: the worker's express lane.
    """
    own = attrs.evolve(
        settings,
        container=f"{settings.container}/{number}",
        hostname=settings.container,
        max_frame_octets=max(settings.max_frame_octets, FRAME_OCTETS),
        typical_frame_octets=max(settings.max_frame_octets, TYPICAL_FRAME_OCTETS),
        handle_max=LINKS_MOST - 1,
        session_window_frames=max(settings.session_window_frames, WINDOW_FRAMES),
        sasl_server=None,
        sasl_required=False,
        sasl_client=None,
        peer_is_trusted_router=True,
    )
    return Engine10(own, express)
