"""Finds the process that a new one replaces: the same router's, on the same state directory."""

import errno
import os
from typing import Final

import structlog
import trio

from router.journal.holder import find_holder
from router.net.listener import Listeners
from router.service.config import ConfigError, RouterConfig
from router.service.handover import ANSWER_SECONDS, OccupiedError, Takeover, take_over
from router.service.journal import Store
from router.service.reloading import try_listeners

TURN_SECONDS: Final = 2.0
"""How long sockets may take to pass from a process to its successor: far more than they do."""

_LOOK_SECONDS: Final = 0.05


async def find_predecessor(config: RouterConfig, listeners: Listeners) -> Takeover | None:
    """Asks the process that runs on the state directory for its sockets; None: none runs.

    While the sockets pass from one process to its successor, neither answers a third one. So if an
    address is in use, it asks again, for as long as somebody has locked the directory.

    Raises:
        ConfigError: an address cannot be had, before any process is started.
        OccupiedError: the process is another router.
        RouterError: the process does not answer.
    """
    began, lock = trio.current_time(), Store.JOURNAL.lock(config)
    while True:
        takeover = await take_over(config.router.state, config.router.drain_seconds)
        if takeover is not None:
            _check_identity(takeover, config)
            return takeover
        try:
            await try_listeners(listeners, config)
        except ConfigError as error:
            seconds = TURN_SECONDS
            if find_holder(lock) is not None:
                seconds = config.router.drain_seconds + ANSWER_SECONDS
            if not _is_in_use(error) or trio.current_time() - began >= seconds:
                raise
        else:
            return None
        await trio.sleep(_LOOK_SECONDS)


def _check_identity(takeover: Takeover, config: RouterConfig) -> None:
    """Checks that the running router has the same container-id as this one.

    The host's name, which is the default, is no proof: then the file has to be the same.

    Raises:
        OccupiedError: it is another router.
    """
    ours, file = config.router, os.path.abspath(config.file)
    if takeover.router not in (None, ours.id):
        takeover.give_back()
        raise OccupiedError(str(ours.state), takeover.router, takeover.process)
    if "id" not in ours.where.keys and takeover.config not in (None, file):
        takeover.give_back()
        raise OccupiedError(str(ours.state), ours.id, takeover.process, config=takeover.config)
    structlog.get_logger().info("handover.taken", process=takeover.process, state=str(ours.state))


def _is_in_use(error: ConfigError) -> bool:
    """Returns whether a listener's address is another process's."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
