"""Tables of handlers: classes that say which of their methods handles what comes."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

import router.wire

TABLES = ("handlers", "content_handlers", "steps", "channel_steps", "_handlers")


def classes() -> Iterator[type]:
    for module in pkgutil.walk_packages(router.wire.__path__, "router.wire."):
        found = import_module(module.name)
        for _, each in inspect.getmembers(found, inspect.isclass):
            if each.__module__ == module.name:
                yield each


def tables_of(owner: type) -> Iterator[tuple[str, Mapping[Any, Callable[..., None]]]]:
    for name in TABLES:
        table = getattr(owner, name, None)
        if isinstance(table, Mapping) and table:
            yield name, table


OWNERS = [each for each in classes() if any(tables_of(each))]


def test_each_protocol_has_tables() -> None:
    folders = {each.__module__.split(".")[2] for each in OWNERS}
    assert folders == {"v1_0", "v0_9_1", "v0_9r1", "v0_10", "fast"}


@pytest.mark.parametrize("owner", OWNERS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_a_table_names_the_methods_that_its_class_really_has(owner: type) -> None:
    """A class that overrides a method in its base's table needs a table that names the override."""
    for name, table in tables_of(owner):
        for key, handler in table.items():
            assert isinstance(handler, FunctionType), (name, key)
            assert getattr(owner, handler.__name__) is handler, (name, key)
