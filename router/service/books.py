"""What a router writes down beside serving: its journal, stored messages, the ledger and spans.

Journal and message store are processes of their own (``journal``). What is compacted into the
ledger (``compaction``) and exported as spans (``tracing``) follows the journal, from its begin on.
"""

from pathlib import Path

import attrs
import trio

from router.service.compaction import LEDGER_SECONDS, LedgerHealth, compact, keep_ledger
from router.service.config import RouterConfig
from router.service.journal import JournalKeeper, Store
from router.service.lease import LeaseRecord
from router.service.tracing import TracingHealth


@attrs.define(eq=False)
class Books:
    """The processes and tasks that write, and how they fare.

    Attributes:
        ledger: whether the ledger is kept up to date.
        tracing: whether spans are exported.
        message_store: the socket of the message store's process; None: there is none.
    """

    ledger: LedgerHealth = attrs.field(factory=LedgerHealth)
    tracing: TracingHealth = attrs.field(factory=TracingHealth)
    message_store: Path | None = None
    _keepers: dict[Store, JournalKeeper] = attrs.field(factory=dict, init=False)
    _has_followers: bool = attrs.field(default=False, init=False)

    @property
    def keeps_journal(self) -> bool:
        """Whether the journal's process runs."""
        return Store.JOURNAL in self._keepers

    @property
    def journal_trouble(self) -> str | None:
        """Why the journal's process cannot open the journal, or, on PostgreSQL, cannot write.

        None: it can, or there is none.
        """
        keeper = self._keepers.get(Store.JOURNAL)
        return None if keeper is None else keeper.failing or keeper.trouble

    @property
    def lease(self) -> LeaseRecord | None:
        """Who leads; None: the journal is in files, or there is none."""
        keeper = self._keepers.get(Store.JOURNAL)
        return None if keeper is None else keeper.lease

    async def keep_journal(self, keeper: JournalKeeper, nursery: trio.Nursery) -> None:
        """Starts the process of a journal, which others may hold before this router may."""
        await nursery.start(keeper.run)
        self._keepers[Store.JOURNAL] = keeper

    async def begin(self, config: RouterConfig, nursery: trio.Nursery) -> None:
        """Starts the processes of journal and message store if some route asks for them.

        What follows the journal begins with it.

        Raises:
            JournalError: the directory of one of them cannot be used.
        """
        for store in Store:
            if store not in self._keepers and store.is_needed(config):
                keeper = JournalKeeper(config, store)
                await nursery.start(keeper.run)
                self._keepers[store] = keeper
        if Store.MESSAGES in self._keepers:
            self.message_store = Store.MESSAGES.socket(config)
        if self.keeps_journal and not self._has_followers:
            self._has_followers = True
            state, options = config.router.state, config.router
            if options.compaction is not None:
                nursery.start_soon(keep_ledger, state, options.compaction, self.ledger)
            if options.tracing is not None:
                nursery.start_soon(self.tracing.run, state, options.tracing)

    async def end(self) -> None:
        """Ends the processes, once all that they were told of is written."""
        for keeper in self._keepers.values():
            await keeper.end()
        await self.tracing.end()

    async def compact(self, config: RouterConfig) -> None:
        """Compacts the last segments into the ledger, within a time limit."""
        options = config.router.compaction
        if options is not None and self.keeps_journal:
            with trio.move_on_after(LEDGER_SECONDS):
                await compact(config.router.state, options)
