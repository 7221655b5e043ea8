"""`receive --json-lines` and `send --json-lines`, back to back through a running router."""

import json
import subprocess
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.net.client.json_message import to_line
from router.wire.v1_0.sections import AnnotatedMessage
from tests.support.commands import begin_octets
from tests.support.json_messages import messages
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """\
router: {{id: json, admin: off}}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: "#"
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    with running_router(CONFIG.format(port=port), tmp_path_factory.mktemp("json")):
        yield f"amqp://127.0.0.1:{port}"


def begin(*arguments: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return begin_octets(*arguments, "--json-lines", "--timeout", "60", stdin=stdin)


def passed(url: str, address: str, lines: bytes, count: int) -> bytes:
    """Returns what a receiver prints of lines that are sent."""
    receiver = begin("receive", url, address, "--count", str(count))
    sender = begin("send", url, address)
    _, errors = sender.communicate(lines, timeout=90)
    assert sender.returncode == 0, errors
    output, errors = receiver.communicate(timeout=90)
    assert receiver.returncode == 0, errors
    return output


@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(messages(), min_size=15, max_size=30))
def test_messages_are_the_same_after_they_were_received_and_sent_again(
    url: str, drawn: list[AnnotatedMessage]
) -> None:
    for each in drawn:  # a ttl would run out on the way; delivery annotations are for one hop
        each.delivery_annotations = None
        if each.header is not None:
            each.header = attrs.evolve(each.header, ttl_ms=None)
    lines = "".join(f"{to_line(each)}\n" for each in drawn).encode()
    once = passed(url, "once", lines, len(drawn))
    assert once.splitlines() == lines.splitlines()
    assert passed(url, "twice", once, len(drawn)) == once


def test_a_bad_line_is_named_and_what_went_before_is_counted(url: str) -> None:
    receiver = begin("receive", url, "bad", "--count", "1")
    sender = begin("send", url, "bad")
    output, errors = sender.communicate(b'{"data": "a"}\n{"body": "b"}\n{"data": "c"}\n', 90)
    assert sender.returncode == 1
    assert output.startswith(b"sent 1, accepted 1 in ")
    assert (
        b"standard input, line 2: 'body' is no section of a message; before it 1 were sent, 1 of"
        b" them settled, and nothing after it" in errors
    )
    output, errors = receiver.communicate(timeout=90)
    assert [json.loads(line) for line in output.splitlines()] == [{"data": "a"}]
    assert errors.startswith(b"received 1, accepted 1 in ")


def test_a_reader_that_leaves_ends_the_receiver_quietly(url: str) -> None:
    receiver = begin("receive", url, "head")
    assert receiver.stdout is not None
    assert receiver.stderr is not None
    receiver.stdout.close()
    sender = begin("send", url, "head")
    sender.communicate(b'{"data": "a"}\n', 90)
    assert sender.returncode == 1, "it was released, for nobody has read it"
    assert (receiver.wait(90), receiver.stderr.read()) == (0, b"")
    receiver.stderr.close()
