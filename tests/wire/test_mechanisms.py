import pytest

from router.errors import MisuseError
from router.wire.mechanisms import Mechanism, MechanismClient, MechanismServer
from router.wire.sasl import Challenge, Failure, SaslClient, SaslServer, Success


class Passwords:
    """Knows one user."""

    def verify_plain(self, user: str, password: str) -> bool:
        return (user, password) == ("müller", "päss")


def test_they_show_the_faces_of_sasl() -> None:
    server: SaslServer = MechanismServer()
    client: SaslClient = MechanismClient()
    assert server.mechanisms == ("ANONYMOUS",)
    assert client.choose(["ANONYMOUS"]) == ("ANONYMOUS", b"anonymous")


def test_only_what_can_work_is_offered() -> None:
    everything = (Mechanism.PLAIN, Mechanism.EXTERNAL, Mechanism.ANONYMOUS, "GSSAPI")
    assert MechanismServer(offer=everything).mechanisms == ("ANONYMOUS",)
    full = MechanismServer(offer=everything, verifier=Passwords(), external_user="cn=x")
    assert full.mechanisms == ("PLAIN", "EXTERNAL", "ANONYMOUS")


@pytest.mark.parametrize(
    ("message", "user"),
    [
        ("\0müller\0päss", "müller"),
        ("müller\0müller\0päss", "müller"),
        ("other\0müller\0päss", None),
        ("\0müller\0pass", None),
        ("\0müller\0", None),
        ("\0\0päss", None),
        ("müller\0päss", None),
        ("\0müller\0päss\0", None),
        ("", None),
    ],
)
def test_plain_takes_the_right_password_of_oneself(message: str, user: str | None) -> None:
    server = MechanismServer(offer=("PLAIN",), verifier=Passwords())
    verdict = server.start("PLAIN", message.encode())
    if user is None:
        assert isinstance(verdict, Failure)
        assert "päss" not in verdict.reason
    else:
        assert verdict == Success(user)


@pytest.mark.parametrize("mechanism", ["PLAIN", "EXTERNAL", "ANONYMOUS"])
def test_octets_that_are_no_text_are_refused(mechanism: str) -> None:
    server = MechanismServer(offer=tuple(Mechanism), verifier=Passwords(), external_user="me")
    assert isinstance(server.start(mechanism, b"\xff\xfe"), Failure)


@pytest.mark.parametrize(
    ("identity", "verdict"), [(b"", Success("cn=me")), (b"cn=me", Success("cn=me")), (b"x", None)]
)
def test_external_is_who_the_layers_below_say(identity: bytes, verdict: Success | None) -> None:
    server = MechanismServer(offer=("EXTERNAL",), external_user="cn=me")
    seen = server.start("EXTERNAL", identity)
    assert seen == verdict or (verdict is None and isinstance(seen, Failure))


def test_a_missing_first_message_is_asked_for() -> None:
    server = MechanismServer(offer=("EXTERNAL",), external_user="cn=me")
    assert server.start("EXTERNAL", None) == Challenge(b"")
    assert server.step(b"") == Success("cn=me")
    with pytest.raises(MisuseError):
        server.step(b"again")


def test_who_is_anonymous_without_a_first_message_is_let_in_at_once() -> None:
    """fe2o3-amqp, which Azure's library in Rust is made of, sends none and knows no challenge."""
    server = MechanismServer()
    assert server.start("ANONYMOUS", None) == Success(None)
    assert server.start("ANONYMOUS", b"") == Success(None)


def test_what_is_not_offered_is_refused() -> None:
    assert isinstance(MechanismServer().start("PLAIN", b"\0a\0b"), Failure)


def test_a_client_takes_the_best_that_it_can() -> None:
    offered = ["ANONYMOUS", "PLAIN", "EXTERNAL", "SCRAM-SHA-256"]
    both = MechanismClient(user="u", password="p", has_certificate=True)
    assert both.choose(offered) == ("EXTERNAL", b"")
    assert both.choose(["PLAIN", "ANONYMOUS"]) == ("PLAIN", b"\0u\0p")
    plain = MechanismClient(user="u", password="p", allowed=("PLAIN",))
    assert plain.choose(offered) == ("PLAIN", b"\0u\0p")
    assert plain.choose(["EXTERNAL"]) is None


def test_a_client_with_a_name_does_not_fall_back_to_anonymous() -> None:
    assert MechanismClient(user="u").choose(["ANONYMOUS", "PLAIN"]) is None
    assert MechanismClient(user="u", password="p").choose(["ANONYMOUS"]) is None


def test_a_client_has_nothing_more_to_say_or_to_check() -> None:
    client = MechanismClient()
    assert client.step(b"more?") == b""
    assert client.check(None)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(MechanismClient(user="u", password="secret"))
