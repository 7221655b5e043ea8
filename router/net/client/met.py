"""The containers that a client's link has met (§2.6.1), and with which it may be resumed."""

import attrs

from router.model.identity import ContainerId


@attrs.define(eq=False)
class Met:
    """What one link knows of the containers at its place."""

    _resumes: dict[ContainerId | None, bool] = attrs.field(factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether none has attached it yet."""
        return not self._resumes

    def answered(self, container: ContainerId | None) -> None:
        """Records that a container has attached the link."""
        self._resumes.setdefault(container, True)

    def keeps_nothing(self, container: ContainerId | None) -> None:
        """Records that a container has refused an unsettled map."""
        self._resumes[container] = False

    def may_resume(self, container: ContainerId | None) -> bool:
        """Returns whether a container may have the link's state, and takes a map of ours."""
        return self._resumes.get(container, False)
