"""Cipher suites: which one two sides agree on, by what their processors have."""

import ssl
from pathlib import Path

import pytest

from router.net.ciphers import choose_order, names_aes
from router.net.tls import TlsSession
from tests.support.tls_ends import KINDS, Contexts, compiled_streams, make_contexts, shake_hands


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    return make_contexts(tmp_path)


def agreed(contexts: Contexts) -> str:
    client, server = TlsSession(contexts.client, "localhost"), TlsSession(contexts.server)
    shake_hands(client, server)
    suite = server.tls.cipher()
    assert suite is not None
    return suite[0]


@pytest.mark.parametrize(
    ("version", "suites"),
    [
        (
            ssl.TLSVersion.TLSv1_2,
            ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ),
        pytest.param(
            ssl.TLSVersion.TLSv1_3,
            ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"),
            marks=pytest.mark.skipif(
                "openssl" not in KINDS, reason="it was not built, or cannot be used here"
            ),
        ),
    ],
)
@pytest.mark.parametrize("aes", [(True, True), (True, False), (False, True), (False, False)])
def test_chacha_is_taken_where_either_side_lacks_instructions_for_aes(
    contexts: Contexts,
    version: ssl.TLSVersion,
    suites: tuple[str, str],
    aes: tuple[bool, bool],
) -> None:
    contexts.client.maximum_version = version
    choose_order(contexts.client, aes=aes[0], compiled=compiled_streams())
    choose_order(contexts.server, aes=aes[1], compiled=compiled_streams())
    assert agreed(contexts) == suites[not all(aes)]


def test_no_suite_is_added_or_lost(contexts: Contexts) -> None:
    before = {suite["name"] for suite in contexts.server.get_ciphers()}
    choose_order(contexts.server, aes=False, compiled=compiled_streams())
    assert {suite["name"] for suite in contexts.server.get_ciphers()} == before


def test_processors_say_what_they_have() -> None:
    assert names_aes(["processor\t: 0", "flags\t\t: fpu aes avx", "flags\t\t: fpu aes avx"])
    assert not names_aes(["flags\t\t: fpu avx"])
    assert names_aes(["Features\t: fp asimd aes pmull"])
    assert not names_aes(["Features\t: fp asimd"])
    assert names_aes(["processor\t: 0"])
