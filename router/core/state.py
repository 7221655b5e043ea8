"""What the machines of the core share."""

import attrs

from router.core.alarms import Alarms
from router.core.archive import Archive
from router.core.ledger import Ledger
from router.core.notices import Notices
from router.core.numbers import Numbers
from router.core.orphans import Orphans
from router.core.registry import Registry
from router.core.rejections import Rejections
from router.core.settings import CoreSettings
from router.core.turn import Turn
from router.model.identity import ContainerId


@attrs.frozen(kw_only=True)
class State:
    """What there is and what is going on: one per core."""

    settings: CoreSettings
    registry: Registry
    orphans: Orphans
    turn: Turn = attrs.field(factory=Turn)
    notices: Notices = attrs.field(factory=Notices)
    alarms: Alarms = attrs.field(factory=Alarms)
    rejections: Rejections = attrs.field(init=False)
    numbers: Numbers = attrs.field(init=False)
    archive: Archive = attrs.field(init=False)
    ledger: Ledger = attrs.field(init=False)

    @rejections.default
    def _make_rejections(self) -> Rejections:
        return Rejections(self.turn, self.notices, self.alarms)

    @numbers.default
    def _make_numbers(self) -> Numbers:
        registry = self.registry
        return Numbers(lambda key: key in registry.attached or bool(registry.kept(key)))

    @archive.default
    def _make_archive(self) -> Archive:
        return Archive(self.turn)

    @ledger.default
    def _make_ledger(self) -> Ledger:
        return Ledger(self.turn, ContainerId(self.settings.router_id), self.archive)
