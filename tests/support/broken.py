"""Rules that are taken away once: a test of the rule must then fail."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

Mutation = Callable[[], AbstractContextManager[Any]]
"""Returns a context in which a rule does not hold."""

Rule = Callable[[], object]
"""A test of a rule."""


def broken(owner: object, name: str, instead: object) -> Mutation:
    """Returns the mutation that has something else in the place of an attribute."""
    return partial(patch.object, owner, name, instead)


def must_show(mutation: Mutation, rule: Rule) -> None:
    """Asserts that a test passes, and fails as soon as its rule is taken away."""
    for context in (nullcontext, mutation):
        expected = pytest.raises(AssertionError) if context is mutation else nullcontext()
        with context(), expected:
            rule()
