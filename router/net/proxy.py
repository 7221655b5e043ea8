"""Dialing through an HTTP proxy: the request CONNECT (RFC 9110 §9.3.6) and what answers it.

The proxy gets the name of the host, not its address, and resolves it. Credentials go by the scheme
Basic (RFC 7617), which is all that proxies have in common; they go to the proxy alone, in clear.
"""

import base64
import re
from typing import Final

import attrs
import h11

from router.errors import RouterError
from router.model.text import shown

HEAD_OCTETS: Final = 16 * 1024
"""Longest head of an answer."""

_SUCCESS: Final = range(200, 300)
_SAID_MOST: Final = 200
_QUOTED: Final = re.compile(r"bytearray\(b(.*)\)", re.DOTALL)
"""How the library's errors quote what came."""


class ProxyError(RouterError):
    """A proxy does not connect; the text says why."""


@attrs.frozen(kw_only=True)
class Proxy:
    """An HTTP proxy. ``str`` leaves the credentials out.

    Attributes:
        user: None: the proxy asks for none.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"proxy {authority(self.host, self.port)}"


def authority(host: str, port: int) -> str:
    """Writes host and port as HTTP does."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@attrs.define(eq=False, init=False)
class ProxyConversation:
    """One request to a proxy.

    Attributes:
        request: octets to send.
    """

    request: bytes
    _http: h11.Connection

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        """Asks a proxy to connect to host and port."""
        target = authority(host, port)
        headers = [("Host", target)]
        if proxy.user is not None:
            pair = f"{proxy.user}:{proxy.password or ''}".encode()
            headers.append(("Proxy-Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_OCTETS)
        request = h11.Request(method="CONNECT", target=target, headers=headers)
        self.request = self._http.send(request) or b""
        self._http.send(h11.EndOfMessage())

    def receive(self, octets: bytes) -> bool:
        """Reads more of the answer; returns whether the proxy has connected.

        Raises:
            ProxyError: it refuses, or breaks the rules.
        """
        if not octets:
            raise ProxyError("it left without an answer")
        self._http.receive_data(octets)
        try:
            answer = self._http.next_event()
            while isinstance(answer, h11.InformationalResponse):
                answer = self._http.next_event()
        except h11.RemoteProtocolError as error:
            reason = _QUOTED.sub(r"\1", str(error))
            raise ProxyError(f"it answers with no HTTP: {shown(reason, _SAID_MOST)}") from None
        if answer is h11.NEED_DATA:
            return False
        assert isinstance(answer, h11.Response), "a response begins with its head"
        if answer.status_code not in _SUCCESS:
            phrase = answer.reason.decode("ascii", "replace")
            raise ProxyError(f"it answers {answer.status_code} {shown(phrase, _SAID_MOST)}")
        if self._http.trailing_data[0]:
            raise ProxyError("it sends octets before the peer was asked for any")
        return True
