"""The secret from which salts are derived (``service.login_key``), shared by routers of one id.

A peer that logs in again after a takeover is told the salt that it was told before. Whoever leads
puts its secret into the row of the lease if there is none; a standby, and a later leader, make that
secret the one of their state directory.
"""

import os
import tempfile
from pathlib import Path

from router.journal.postgres.lease import LOGIN_KEY_NAME
from router.journal.postgres.storage import PostgresStorage


def share_login_key(storage: PostgresStorage, state: Path, epoch: int | None) -> None:
    """Makes the shared secret that of a state directory.

    Args:
        storage: the store.
        state: directory.
        epoch: of our lease; None: we have none, and share nothing of ours.

    Raises:
        OSError: the database or the directory cannot be used.
    """
    path = state / LOGIN_KEY_NAME
    own = path.read_bytes() if path.exists() else None
    shared = storage.login_key() if own is None or epoch is None else storage.put_key(own, epoch)
    if shared is None or shared == own:
        return
    descriptor, name = tempfile.mkstemp(dir=state, prefix=f".{LOGIN_KEY_NAME}.")
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(shared)
        opened.flush()
        os.fsync(opened.fileno())
    Path(name).replace(path)
