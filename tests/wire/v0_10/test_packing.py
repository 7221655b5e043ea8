"""What is read of a session that another worker has packed."""

import pickle

import pytest

from router.errors import DecodeError
from router.wire.v0_10.packing import unpack


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\x80",
        pickle.dumps((1.0, "no session")),
        pickle.dumps("no pair"),
        b"cos\nsystem\n(S'false'\ntR.",
        b"\x80\x04\x8c\x15router.model.compiled\x8c\x17importlib.import_module\x93.",
        b"\x80\x04\x8c\x15router.model.compiled\x8c\x08compiled\x93.",
        b"\x80\x04\x8c\x15router.model.compiled\x8c\x0aModuleType\x93.",
    ],
)
def test_nothing_but_what_a_session_consists_of_is_made(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        unpack(octets)
