"""A login whose last word is a challenge, as 0-9-1, 0-10 and AMQP/Fast carry it."""

from collections.abc import Sequence

from router.errors import MisuseError
from router.wire.sasl import Challenge, Failure, Login, SaslVerdict, Success


class Scripted:
    """A mechanism that says what it was told to, one after the other."""

    def __init__(self, *verdicts: SaslVerdict) -> None:
        self._verdicts = list(verdicts)

    @property
    def mechanisms(self) -> Sequence[str]:
        return ("PROOF",)

    def start(self, mechanism: str, initial: bytes | None) -> SaslVerdict:
        return self.step(initial or b"")

    def step(self, response: bytes) -> SaslVerdict:
        if not self._verdicts:
            raise MisuseError("the exchange is over")
        return self._verdicts.pop(0)


def test_the_last_word_is_one_more_challenge_whose_answer_says_nothing() -> None:
    login = Login(Scripted(Challenge(b"1"), Success("app", b"proof")))
    assert login.start("PROOF", None) == Challenge(b"1")
    assert login.step(b"2") == Challenge(b"proof")
    assert login.step(b"whatever") == Success("app")


def test_a_mechanism_without_a_last_word_is_done_at_once() -> None:
    assert Login(Scripted(Success("app"))).start("PROOF", b"") == Success("app")


def test_a_failure_is_a_failure() -> None:
    assert Login(Scripted(Failure("no"))).start("PROOF", b"") == Failure("no")


def test_who_chooses_a_mechanism_that_proves_nothing_is_nobody() -> None:
    login = Login(Scripted())
    assert login.mechanisms == ("PROOF",)
    assert login.start("ANONYMOUS", b"") == Success(None)
    assert Login(None).start("PLAIN", b"\0a\0b") == Success(None)
    assert not Login(None).mechanisms


def test_an_answer_that_nobody_waits_for_is_a_failure() -> None:
    assert isinstance(Login(None).step(b""), Failure)
    assert isinstance(Login(Scripted()).step(b""), Failure)
