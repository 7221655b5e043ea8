from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.place import BindAddress, TcpAddress, UnixAddress
from router.net.proxy import Proxy
from router.routes.route import Position
from router.service.config.addresses import Bind, ContainerUrl, ProxyUrl, Urls
from router.service.config.document import Scalar, parse_document
from router.service.config.kinds import Reading
from router.service.config.problems import UnfitError
from router.service.config.references import Secret, Sources

HERE = Position("r.yaml", 1, 1)


def urls(text: str, **environment: str) -> tuple[ContainerUrl, ...]:
    reading = Reading(Sources(environment, Path()))
    node = parse_document(text, "r.yaml", reading.problems.append)
    assert node is not None
    found = Urls().read(node, "url", reading)
    assert not reading.problems
    return found


def bind(text: str) -> BindAddress:
    return Bind().read(Scalar(text, HERE), "bind", Reading(Sources({}, Path("/etc"))))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5672", TcpAddress("127.0.0.1", 5672)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("[::1]:5671", TcpAddress("::1", 5671)),
        ("unix:/run/router.sock", UnixAddress(Path("/run/router.sock"))),
        ("unix:router.sock", UnixAddress(Path("/etc/router.sock"))),
    ],
)
def test_bind_addresses_are_read(text: str, address: BindAddress) -> None:
    assert bind(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "5672",
        "host",
        "host:65536",
        "host:x",
        "::1:5672",
        "[nope]:1",
        "unix:",
        ":5672",
        "",
        "a..b:1",
        ".b:1",
    ],
)
def test_bad_bind_addresses_are_refused(text: str) -> None:
    with pytest.raises(UnfitError):
        bind(text)


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("127.0.0.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/x", True),
        ("0.0.0.0:1", False),
        ("example.com:1", False),
    ],
)
def test_loopback_is_told_from_the_network(text: str, is_loopback: bool) -> None:
    assert bind(text).is_loopback is is_loopback


def test_bind_addresses_are_written_as_they_are_read() -> None:
    for text in ("127.0.0.1:5672", "[::1]:5671", "unix:/run/router.sock"):
        assert str(bind(text)) == text


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("amqp://h", ContainerUrl(host="h", port=5672)),
        ("amqps://h", ContainerUrl(host="h", port=5671, is_tls=True)),
        ("AMQP://h:1/", ContainerUrl(host="h", port=1)),
        ("amqp://[::1]:7", ContainerUrl(host="::1", port=7)),
        ("amqp://[::1]", ContainerUrl(host="::1", port=5672)),
        ("amqp://u@h", ContainerUrl(host="h", port=5672, user="u")),
        ("amqp://h/%2f", ContainerUrl(host="h", port=5672, vhost="/")),
        ("ws://h", ContainerUrl(host="h", port=80, path="/")),
        ("WS://h:1/a%20b/", ContainerUrl(host="h", port=1, path="/a%20b/")),
        (
            "wss://u:p@h/$servicebus/websocket",
            ContainerUrl(
                host="h",
                port=443,
                is_tls=True,
                user="u",
                password=Secret("p"),
                path="/$servicebus/websocket",
            ),
        ),
        ("amqp://h/a%2Fb", ContainerUrl(host="h", port=5672, vhost="a/b")),
        (
            "amqp://u%40x:p%3Aw@h/v",
            ContainerUrl(host="h", port=5672, user="u@x", password=Secret("p:w"), vhost="v"),
        ),
    ],
)
def test_urls_are_taken_apart(text: str, url: ContainerUrl) -> None:
    assert urls(text) == (url,)


@pytest.mark.parametrize(
    "text",
    [
        "amqp://a,amqp://b:1",
        "amqp://a, amqp://b:1",
        "[amqp://a, amqp://b:1]",
        "['amqp://a,amqp://b:1']",
    ],
)
def test_several_urls_are_one_container(text: str) -> None:
    assert [str(url) for url in urls(text)] == ["amqp://a:5672", "amqp://b:1"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://h", "does not begin with amqp:// or amqps://"),
        ("hunter2", "does not begin with"),
        ("amqp://", "no host"),
        ("amqp://:hunter2@h", "a password and no user"),
        ("amqp://u:hunter2@h:x", "a port that is no number"),
        ("amqp://u:hunter2@h:99999", "port above 65535"),
        ("amqp://u:hunter2@h:0", "port 0"),
        ("amqp://u:hunter2#@h", "percent-encode"),
        ("amqp://u:hunter2/x@h", "has a '/' in user or password: there it is written %2F"),
        ("amqp://u:hunter2@h/v?x=1", "percent-encode"),
        ("amqp://u:hunter2%ff@h", "not UTF-8"),
        ("amqp://u:hunter2@[x]:1", "no host"),
        ("amqp://u:hunter2@[1:2]:1", "no IPv6 address"),
        ("amqp://u:hunter2@a..b", "a host that is no name"),
        ("wss://u:hunter2@h/v?x=1", "percent-encode"),
        ("wss://u:hunter2@h/ü", "not ASCII"),
        ("[]", "empty list"),
    ],
)
def test_bad_urls_are_refused_without_being_quoted(text: str, reason: str) -> None:
    with pytest.raises(UnfitError) as caught:
        urls(f'"{text}"' if text[0] != "[" else text)
    assert reason in caught.value.reason
    assert "hunter2" not in caught.value.reason


def test_url_shows_everything_but_its_password() -> None:
    (url,) = urls("amqps://u%40x:hunter2@h:1/%2f")
    assert str(url) == "amqps://u%40x:***@h:1/%2F"
    assert "hunter2" not in repr(url)


@given(st.text(min_size=1), st.text(min_size=1))
def test_references_may_put_any_character_into_user_and_password(user: str, password: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in user + password):
        return
    found = urls("amqp://${U}:${P}@h:1/%2f, amqp://x:a${P}@i", U=user, P=password)
    assert [(url.user, url.password) for url in found] == [
        (user, Secret(password)),
        ("x", Secret(f"a{password}")),
    ]
    assert [(url.host, url.vhost) for url in found] == [("h", "/"), ("i", None)]


def test_references_elsewhere_in_a_url_are_taken_as_url_text() -> None:
    assert urls("${URL}", URL="amqp://u:p%40@h:9") == urls("amqp://u:p%40@h:9")
    assert urls("amqp://u@${PLACE}/v", PLACE="h:9") == urls("amqp://u@h:9/v")


def test_a_url_of_a_websocket_is_written_as_it_was_read() -> None:
    (url,) = urls("wss://u:p@h:444/a/b")
    assert str(url) == "wss://u:***@h:444/a/b"


def proxy(text: str) -> Proxy:
    return ProxyUrl().parse(text)


def test_a_proxy_is_host_and_port_with_user_and_password() -> None:
    assert proxy("http://p:3128") == Proxy(host="p", port=3128)
    assert proxy("HTTP://[::1]:8/") == Proxy(host="::1", port=8)
    read = proxy("http://u:hunter%402@p:3128")
    assert read == Proxy(host="p", port=3128, user="u", password="hunter@2")
    assert "hunter" not in f"{read} {read!r}"


@pytest.mark.parametrize(
    "text",
    ["p:3128", "https://p:3128", "http://hunter2:3128/x", "http://hunter2", "http://u:hunter2@p"],
)
def test_a_wrong_proxy_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(UnfitError) as caught:
        proxy(text)
    assert "hunter2" not in caught.value.reason
