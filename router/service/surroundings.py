"""What a configuration meets on this machine: whether its directory and its addresses can be had.

What is found is no problem of the file: another user may run the router, on another machine, and it
may run already. So ``router check`` says it as a note. Only a journal that is not where the file
says is a problem: the router would begin a second one.
"""

import contextlib
import errno
import os
import pwd
from collections.abc import Iterator
from typing import Final

import trio

from router.journal.holder import find_holder
from router.model.place import BindAddress, TcpAddress
from router.net.sockets import try_listening
from router.routes.route import Position
from router.service.config import Problem, RouterConfig
from router.service.journal import Store, needs_journal, why_elsewhere

_NO_HANDOVER: Final = "without it no new process takes over from a running one without a gap"


def state_notes(config: RouterConfig) -> Iterator[Problem]:
    """Looks whether this user can write to the state directory, or make it."""
    state = config.router.state
    found = next((each for each in (state, *state.parents) if each.exists()), None)
    if found is None or os.access(found, os.W_OK | os.X_OK):
        return
    effect = "router run needs it for the journal" if needs_journal(config) else _NO_HANDOVER
    note = f"router.state: {_user()} cannot write to {found}; {effect}"
    yield Problem(config.router.where.of("state"), note)


def store_problems(config: RouterConfig) -> Iterator[Problem]:
    """Looks whether ``router run`` would refuse because the journal is elsewhere."""
    journal, router = config.router.journal.where, config.router.where
    for store in Store:
        with contextlib.suppress(OSError):  # another user's
            reason = why_elsewhere(config, store)
            if reason is not None and (store is Store.JOURNAL or store.is_needed(config)):
                position = journal.keys.get("store", router.of("journal"))
                problem = f"router.journal.store: {store.directory(config)}: {reason}"
                yield Problem(position, problem)


def address_notes(config: RouterConfig) -> Iterator[Problem]:
    """Looks whether the addresses of listeners and admin endpoint are free, as ``run`` does."""
    for option, address, position in _addresses(config):
        if isinstance(address, TcpAddress) and not address.port:
            continue
        try:
            trio.run(try_listening, address)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                reason = f"it is in use, {_by_whom(config)}"
            yield Problem(position, f"{option}: {address} cannot be had: {reason}")


def _addresses(config: RouterConfig) -> Iterator[tuple[str, BindAddress, Position]]:
    for number, listener in enumerate(config.listeners):
        yield f"listeners[{number}].bind", listener.bind, listener.where.of("bind")
    admin, probes, where = config.router.admin, config.router.probes, config.router.where
    if admin is not None:
        yield "router.admin", admin.bind, where.of("admin")
    if probes is not None:
        yield "router.probes", probes, where.of("probes")


def _by_whom(config: RouterConfig) -> str:
    holder = find_holder(Store.JOURNAL.lock(config))
    if holder is None:
        return "by this router, if it runs already (see router status), or by another process"
    return f"by this router, which runs as process {holder.process}, or by another process"


def _user() -> str:
    try:
        return f"user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"user {os.geteuid()}"
