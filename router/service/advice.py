"""What to do when a container, or an address of it, is not reached: advice by the reason.

The reasons are those of engines, TLS and the system. Each advice is a whole sentence that names
what to change. It is worded for the one who reads it by ``Words``: a container of the file, or the
URL of a command.
"""

import re
from collections.abc import Iterable
from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Words:
    """What advice calls the things that the reader can change.

    Attributes:
        places: where was dialed, without passwords.
        ports: the ports of these places, where AMQP should be spoken without WebSocket.
        url: what holds the URL.
        protocol: what says which protocol is spoken.
        login: what holds user and password.
        tls: what holds the other options of TLS.
        authorities: what names the authorities to trust.
        server_name: what says which name the peer's certificate bears.
        otherwise: the advice where nothing fits.
    """

    places: str
    ports: tuple[int, ...]
    url: str
    protocol: str
    login: str
    tls: str
    authorities: str
    server_name: str
    otherwise: str


def container_words(name: str, places: Iterable[str], ports: Iterable[int]) -> Words:
    """Returns the words for a container of the configuration."""
    at = f"containers.{name}"
    several = tuple(places)
    urls = ", ".join(several)
    is_web = any(each.startswith(("ws://", "wss://")) for each in several)
    return Words(
        places=urls,
        ports=() if is_web else tuple(ports),
        url=f"{at}.url",
        protocol=f"{at}.protocol",
        login=at,
        tls=f"{at}.tls",
        authorities=f"{at}.tls.ca",
        server_name=f"{at}.tls.server_name",
        otherwise=f"it is dialed for ever at {urls}",
    )


def command_words(place: str, port: int | None) -> Words:
    """Returns the words for a command that was given a URL.

    Args:
        place: where it dials, without password.
        port: of that; None: it has none.
    """
    return Words(
        places=place,
        ports=() if port is None else (port,),
        url="URL",
        protocol="--protocol",
        login="URL",
        tls="--ca, and the peer's own settings,",
        authorities="--ca",
        server_name="URL",
        otherwise="check URL, and --protocol",
    )


_OTHER_PORTS: Final = {
    15672: ("RabbitMQ's management (HTTP)", "5672"),
    15671: ("RabbitMQ's management (HTTPS)", "5671"),
    15692: ("RabbitMQ's metrics (HTTP)", "5672"),
    25672: ("the links between RabbitMQ's nodes", "5672"),
    4369: ("Erlang's port mapper", "5672"),
    5552: ("RabbitMQ's streams", "5672"),
    8161: ("the console of ActiveMQ and Artemis (HTTP)", "5672 (Artemis: 61616, too)"),
    8162: ("the console of ActiveMQ (HTTPS)", "5671"),
    8672: ("this router's own admin endpoint (HTTP)", "5672"),
    8673: ("this router's own probes (HTTP)", "5672"),
    61613: ("STOMP", "5672"),
    1883: ("MQTT", "5672"),
    8883: ("MQTT with TLS", "5671"),
    9092: ("Kafka", "5672"),
    80: ("HTTP", "5672"),
    443: ("HTTPS", "5671"),
    8080: ("HTTP", "5672"),
    8443: ("HTTPS", "5671"),
}
"""Ports that brokers use for something else, with what that is and where they speak AMQP."""


def describe_port(port: int) -> str | None:
    """Returns what a port is that usually does not speak AMQP, and which does; None: it may."""
    if port not in _OTHER_PORTS:
        return None
    what, instead = _OTHER_PORTS[port]
    return f"port {port} is usually {what}, and AMQP is at {instead}"


_NO_AMQP: Final = (
    "speaks http",
    "speaks no amqp",
    "does not speak tls",
    "refused",
    "without a close",
    "hung up",
    "left during the handshake",
    "within",
    "lost",
    "reset",
)
"""Reasons that the wrong port may have."""

_PROXY: Final = "proxy "
"""Begins the reason if it is a proxy's."""

_CONNECTION_ADVICE: Final = (
    ("answers 407", "check the user and password in the container's option proxy"),
    (_PROXY, "check the container's option proxy, and whether the proxy allows {places}"),
    (
        "websocket is refused",
        "check the path in {url}; a login or a redirect in between is not followed",
    ),
    (
        "no websocket",
        "no WebSocket is served there: write amqp:// or amqps:// and its port in {url}",
    ),
    ("its subprotocol", "something other than AMQP is served over WebSocket there: check {url}"),
    (
        "does not speak tls",
        "write amqp:// in {url}, or dial the port that speaks TLS, which is usually 5671",
    ),
    ("wants tls", "write amqps:// in {url}, or dial the port without TLS, usually 5672"),
    ("wants sasl", "it speaks amqp-1.0: write that in {protocol}"),
    ("without sasl", "it speaks amqp-1.0: write that in {protocol}"),
    (
        "the peer speaks amqp-",
        "write {spoken} in {protocol} (RabbitMQ before 4 needs a plugin for amqp-1.0)",
    ),
    ("vhost", "check the virtual host, which is the path of {url} (%2f is RabbitMQ's '/')"),
    (
        "speaks http",
        "a console or management listens there: write the port of AMQP, usually 5672 (with TLS"
        " 5671), in {url}",
    ),
    (
        "speaks no amqp",
        "that is no port of AMQP: write the right one, usually 5672 (with TLS 5671), in {url}",
    ),
    ("alert", "it refuses our TLS: check cert and key in {tls}, and its log"),
    ("issuer", "name the authority that signed its certificate in {authorities}"),
    ("self-signed", "name the authority that signed its certificate in {authorities}"),
    ("has expired", "renew the certificate at {places}, or set the clock of this machine"),
    ("mismatch", "write the name that its certificate bears in {server_name}"),
    ("certificate", "check {tls} against the certificate that it shows"),
    (
        "no mechanism in common",
        "write user and password in {url} (amqp://user:password@host), or check the mechanisms in"
        " {login}",
    ),
    (
        "offered mechanisms",
        "write user and password in {url} (amqp://user:password@host), or check the mechanisms in"
        " {login}",
    ),
    ("unauthorized", "check the user and password in {login}"),
    ("sasl", "check the user, password and mechanisms in {login}"),
    ("authentication", "check the user and password in {login}"),
    ("refused", "nothing listens at {places}: is it running, is the port right?"),
    ("not known", "this machine does not know the host name in {places}: check {url}"),
    ("no address", "this machine does not know the host name in {places}: check {url}"),
    ("name resolution", "no name server answers for the host in {places}: check {url} and the DNS"),
    (
        "without a close",
        "it hung up: read its log; is it AMQP that listens at {places}, and as {protocol} says?",
    ),
    (
        "connection was lost",
        "it hung up: read its log; is it AMQP that listens at {places}, and as {protocol} says?",
    ),
    (
        "reset",
        "it hung up: read its log; is it AMQP that listens at {places}, and as {protocol} says?",
    ),
    ("no connection within", "nothing answers at {places}: is there a firewall between?"),
    (
        "within",
        "something listens at {places} and does not answer: is that the port of AMQP, and is AMQP"
        " spoken there as {protocol} says?",
    ),
    ("unreachable", "there is no way to {places}: check the network and {url}"),
    ("no route to host", "there is no way to {places}: check the network and {url}"),
)
"""Sign in the reason, in small letters, and advice; the first that fits counts."""

_LINK_ADVICE: Final = (
    (
        "not-found",
        "make '{address}' there (the key declare in the route lets a broker of 0-9-1 or 0-10 make"
        " it), or correct the address in the route",
    ),
    ("unauthorized", "give the user that we log in with the right to '{address}'"),
    ("locked", "another connection has '{address}' for itself: end that one, or name another"),
    ("not-implemented", "it cannot do this at '{address}': name another address in the route"),
    ("invalid-field", "'{address}' is no name there: correct the address in the route"),
    (
        "precondition",
        "'{address}' is there with other properties: make it anew, or adapt declare in the route",
    ),
)
_COMMAND_LINK_ADVICE: Final = (
    (
        "not-found",
        "check ADDRESS: it must be there, or, if a router is dialed, one of its routes must match"
        " it (`router explain` shows which does)",
    ),
    (
        "unauthorized",
        "check the user and password in URL: they are wrong, or lack the right to '{address}'",
    ),
    ("locked", "another connection has '{address}' for itself: end that one, or name another"),
    ("invalid-field", "'{address}' is no name there: correct ADDRESS"),
)
_SPOKEN: Final = re.compile(r"the peer speaks (amqp-[a-z0-9.-]+)")


def connection_advice(reason: str, words: Words) -> str:
    """Returns what to do about a container that is not reached for a reason."""
    lowered = reason.lower()
    ports = [said for port in words.ports if (said := describe_port(port)) is not None]
    if ports and _PROXY not in lowered and any(sign in lowered for sign in _NO_AMQP):
        return f"{ports[0]}: write that in {words.url}"
    spoken = _SPOKEN.search(reason)
    advice = first_fitting(_CONNECTION_ADVICE, reason, "{otherwise}")
    return advice.format(
        **attrs.asdict(words), spoken="the protocol" if spoken is None else spoken.group(1)
    )


def link_advice(reason: str, address: str, otherwise: str) -> str:
    """Returns what to do about an address to which no link can be attached for a reason."""
    advice = first_fitting(_LINK_ADVICE, reason, "")
    return advice.format(address=address) if advice else otherwise


def command_link_advice(reason: str, address: str) -> str | None:
    """Returns what to do when a command's link is refused for a reason; None: that says it all."""
    advice = first_fitting(_COMMAND_LINK_ADVICE, reason, "")
    return advice.format(address=address) or None


def first_fitting(advices: tuple[tuple[str, str], ...], reason: str, otherwise: str) -> str:
    """Returns the advice of the first sign that is in a reason."""
    lowered = reason.lower()
    return next((advice for sign, advice in advices if sign in lowered), otherwise)
