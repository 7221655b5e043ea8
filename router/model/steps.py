"""Work that is done in steps: a generator that yields between them and returns the result."""

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

import attrs

Result = TypeVar("Result")


@attrs.define(eq=False)
class Steps(Generic[Result]):
    """The steps of a generator, to be iterated over once; then ``result`` is what it returned."""

    _generator: Generator[None, None, Result]
    result: Result = attrs.field(init=False)

    def __iter__(self) -> Iterator[None]:
        self.result = yield from self._generator


def at_once(generator: Generator[None, None, Result]) -> Result:
    """Does all steps in one go and returns the result."""
    steps = Steps(generator)
    for _ in steps:
        pass
    return steps.result
