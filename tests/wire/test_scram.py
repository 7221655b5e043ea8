"""SCRAM: the exchange of the RFC, both our sides together, and peers that break rules."""

import base64

import pytest

from router.wire.mechanisms import MechanismClient, MechanismServer
from router.wire.sasl import Challenge, Failure, FindSecret, ScramSecret, Success
from router.wire.scram import (
    SCRAM_MECHANISMS,
    derive,
    is_password_of,
    read_secret,
    write_secret,
)

SALT = bytes(range(16))


def knows(user: str, password: str) -> FindSecret:
    def find(name: str, mechanism: str) -> ScramSecret:
        return derive(mechanism, password if name == user else "nobody's", SALT, 4096)

    return find


def converse(client: MechanismClient, server: MechanismServer) -> tuple[Success | Failure, bool]:
    """Lets both talk to the end; gives the verdict, and what the client thinks of the server."""
    choice = client.choose(server.mechanisms)
    assert choice is not None
    verdict = server.start(*choice)
    while isinstance(verdict, Challenge):
        verdict = server.step(client.step(verdict.octets))
    return verdict, isinstance(verdict, Success) and client.check(verdict.octets)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["bob", "mü,ll=er"])
def test_the_right_password_lets_in_and_proves_the_server(mechanism: str, user: str) -> None:
    server = MechanismServer(offer=(mechanism,), find_secret=knows(user, "pencil"))
    client = MechanismClient(user=user, password="pencil")
    verdict, is_proved = converse(client, server)
    assert isinstance(verdict, Success)
    assert verdict.user == user
    assert is_proved


@pytest.mark.parametrize(("user", "password"), [("bob", "pen"), ("eve", "pencil")])
def test_a_wrong_password_and_a_user_that_is_not_fail_alike(user: str, password: str) -> None:
    server = MechanismServer(offer=("SCRAM-SHA-256",), find_secret=knows("bob", "pencil"))
    verdict, _ = converse(MechanismClient(user=user, password=password), server)
    assert isinstance(verdict, Failure)
    assert "pencil" not in verdict.reason
    assert user in verdict.reason


def test_exchange_of_rfc_7677_is_answered_as_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    monkeypatch.setattr(
        "scramp.core.token_hex", lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", raising=True
    )
    server = MechanismServer(
        offer=("SCRAM-SHA-256",),
        find_secret=lambda user, mechanism: derive(mechanism, "pencil", salt, 4096),
    )
    challenge = server.start("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == Challenge(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    proof = "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    verdict = server.step(f"c=biws,r={nonce},{proof}".encode())
    assert verdict == Success("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "message", [b"", b"\xff", b"n,,", b"p=tls-unique,,n=a,r=b", b"n,a=x,n=a,r=b", b"n,,n=a,r=" * 99]
)
def test_a_first_message_that_breaks_a_rule_is_refused(message: bytes) -> None:
    server = MechanismServer(offer=("SCRAM-SHA-256",), find_secret=knows("bob", "x"))
    assert isinstance(server.start("SCRAM-SHA-256", message), Failure)


@pytest.mark.parametrize(
    "challenge",
    [b"", b"\xff", b"r=other,s=AAAAAAAAAAAAAAAAAAAAAA==,i=4096", b"i=99999999", b"e=other-error"],
)
def test_a_server_that_breaks_a_rule_gets_no_proof_and_is_not_believed(challenge: bytes) -> None:
    client = MechanismClient(user="bob", password="x", allowed=("SCRAM-SHA-256",))
    assert client.choose(["SCRAM-SHA-256"]) is not None
    assert client.step(challenge) == b""
    assert not client.check(b"v=AAAA")


def test_a_server_may_not_ask_for_work_without_end() -> None:
    client = MechanismClient(user="bob", password="x", allowed=("SCRAM-SHA-256",))
    choice = client.choose(["SCRAM-SHA-256"])
    assert choice is not None
    assert choice[1] is not None
    nonce = choice[1].decode().rpartition("r=")[2]
    first = f"r={nonce}abc,s={base64.b64encode(SALT).decode()},i=10000000"
    assert client.step(first.encode()) == b""


def test_a_server_that_skips_its_proof_is_not_believed() -> None:
    client = MechanismClient(user="bob", password="x", allowed=("SCRAM-SHA-256",))
    assert client.choose(["SCRAM-SHA-256"]) is not None
    assert not client.check(None)


def test_secrets_are_read_as_they_were_written() -> None:
    secret = derive("SCRAM-SHA-512", "pencil", SALT, 5000)
    assert read_secret(write_secret(secret)) == secret
    assert "pencil" not in write_secret(secret) + repr(secret)
    assert is_password_of(secret, "pencil")
    assert not is_password_of(secret, "pencil ")


@pytest.mark.parametrize(
    "word",
    ["", "x", "MD5:4096:a:b:c", "SCRAM-SHA-256:1:AAAA:b:c", "SCRAM-SHA-256:4096:AAAA:AAAA:AAAA"],
)
def test_a_word_that_is_no_secret_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="it"):
        read_secret(word)


def test_a_token_goes_with_its_user_by_xoauth2() -> None:
    client = MechanismClient(user="me@x", token="abc")
    offered = ["PLAIN", "XOAUTH2", "ANONYMOUS"]
    assert client.choose(offered) == ("XOAUTH2", b"user=me@x\x01auth=Bearer abc\x01\x01")
    assert client.step(b'{"status":"401"}') == b""
    assert MechanismClient(token="abc").choose(["ANONYMOUS"]) is None
