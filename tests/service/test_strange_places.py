"""Strange things that peers name: lists of absurd size, wrong types, places out of TLS."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from router.model.condition import CONNECTION_REDIRECT, Condition
from tests.service.test_failover import (
    config_of,
    connecting,
    listing,
    lose,
    place,
    reasons,
    until_connected,
)
from tests.support.certificates import Certificates
from tests.support.container import Container
from tests.support.planes import house

ENTRIES = 32
"""So many of a list are read."""


async def test_of_an_absurd_list_the_beginning_is_read_once_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    a, b = Container(), Container()
    junk: list[Any] = [
        {"network-host": 7},
        {"network-host": ["127.0.0.1"]},
        {"network-host": "127.0.0.1", "port": True},
        {"network-host": "127.0.0.1", "port": -1},
        {"network-host": "127.0.0.1", "port": "9" * 400},
        {"network-host": "127.0.0.1", "scheme": {}},
        {7: "127.0.0.1"},
        None,
        [],
    ]
    a.properties = listing(*junk, *[place(b)] * 1000)
    with capture_logs() as log:
        async with (
            a.listening(),
            b.listening(),
            house() as at,
            connecting(at, config_of(a), tmp_path) as connector,
        ):
            for _ in range(2):  # the same list again is no news
                await until_connected(connector, a)
                assert connector.status.others == (f"127.0.0.1:{b.port}",)
                await lose(a)
                await until_connected(connector, b)
                await lose(b)
    told = reasons(log, "container.failover_refused")
    assert f"it has {len(junk) + 1000} entries; the first {ENTRIES} are read" in told
    assert len([each for each in told if each.startswith("entry ")]) % len(junk) == 0
    assert len(told) <= 2 * (len(junk) + 1)
    assert max(map(len, told)) < 200


@pytest.mark.parametrize("scheme", ["amqp", "ws"])
async def test_a_redirect_out_of_tls_is_refused_and_named(tmp_path: Path, scheme: str) -> None:
    a, b = await over_tls(tmp_path), Container()
    a.farewell = Condition(CONNECTION_REDIRECT, "there", place(b, scheme=scheme))
    with capture_logs() as log:
        async with (
            a.listening(),
            b.listening(),
            house() as at,
            connecting(at, with_tls(a, tmp_path), tmp_path),
        ):
            await a.until(lambda it: len(it.opened) >= 3)
    told = [each for each in log if each["event"] == "container.redirect_refused"]
    assert {(each["to"], each["reason"]) for each in told} == {
        (f"{scheme}://127.0.0.1:{b.port}", f"the URL has TLS, and {scheme} would not")
    }
    assert not b.opened


async def test_a_redirect_that_names_no_scheme_stays_in_tls(tmp_path: Path) -> None:
    """A place without TLS gets a hello of TLS, and neither a password nor AMQP in clear."""
    a, heard = await over_tls(tmp_path), bytearray()

    async def listen(stream: trio.SocketStream) -> None:
        heard.extend(await stream.receive_some(1000))

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, listen, [listener])
        port = listener.socket.getsockname()[1]
        info: dict[object, object] = {"network-host": "127.0.0.1", "port": port}
        a.farewell = Condition(CONNECTION_REDIRECT, "there", info)
        async with (
            a.listening(),
            house() as at,
            connecting(at, with_tls(a, tmp_path), tmp_path),
        ):
            with trio.fail_after(20):
                while not heard:
                    await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert heard[:2] == b"\x16\x03", "a record of TLS's handshake"
    assert b"AMQP" not in heard


async def over_tls(folder: Path) -> Container:
    """Gives a container that listens with TLS alone; its certificate is signed."""
    papers = Certificates(folder)
    papers.write()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(papers.server("good"))
    return Container(tls=context)


def with_tls(container: Container, folder: Path) -> str:
    text = config_of(
        container, f"tls: {{ca: {Certificates(folder).authorities}}}", 'failover_hosts: "*"'
    )
    return text.replace("amqp://", "amqps://")
