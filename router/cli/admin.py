"""Shared by the commands that talk to a running router: finding and asking its endpoint."""

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import attrs
import click

from router.cli.output import print_lines
from router.errors import RouterError
from router.model.log_values import reason_of
from router.model.place import BindAddress, TcpAddress, UnixAddress
from router.service.config.addresses import Bind
from router.service.config.problems import ConfigError, UnfitError
from router.service.config.process import DEFAULT_ADMIN, Admin
from router.service.config.whereabouts import ROUTER_HEADER, find_admin

FAILED: Final = 1
BAD_USAGE: Final = 2
DEFAULT_CONFIG: Final = "router.yaml"
TOKEN_VARIABLE: Final = "ROUTER_ADMIN_TOKEN"
ANSWER_SECONDS: Final = 35.0
"""Time limit of a request, a little longer than the router's own."""

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}

Command = TypeVar("Command", bound=Callable[..., Any])


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where the admin endpoint is, and how to speak to it.

    Attributes:
        certificate: the only certificate trusted; None: the system's authorities are trusted.
        router: id of the router that is meant; None: whichever answers.
    """

    address: BindAddress
    is_tls: bool = False
    certificate: Path | None = None
    token: str | None = attrs.field(default=None, repr=False)
    router: str | None = None

    def __str__(self) -> str:
        return str(self.address)


@attrs.frozen
class AdminError(RouterError):
    """The router does not answer, or refuses the request.

    Attributes:
        status: of its answer; None: there was no answer.
        advice: lines that suggest what to do.
        is_late: the answer has not come in time.
    """

    reason: str
    status: int | None = None
    advice: tuple[str, ...] = ()
    is_late: bool = False

    def __str__(self) -> str:
        return self.reason


def admin_options(command: Command) -> Command:
    """Adds the options by which a running router is found."""
    decorators = (
        click.option(
            "--admin",
            metavar="ADDRESS",
            help="Admin endpoint: host:port, unix:/path or https://host:port; default: that of"
            f" --config, else {DEFAULT_ADMIN}.",
        ),
        click.option(
            "--token",
            metavar="TOKEN",
            envvar=TOKEN_VARIABLE,
            show_envvar=True,
            help="Value of router.admin.token; default: as read from --config.",
        ),
        click.option(
            "--config",
            metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help=f"The router's file, which says where it is; default: {DEFAULT_CONFIG}, if there"
            " is one.",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def find_endpoint(admin: str | None, token: str | None, config: Path | None) -> Endpoint:
    """Finds the admin endpoint by the options; exits with 2 if they do not determine it."""
    if admin is not None:
        return attrs.evolve(_parse(admin), token=token)
    path = config or Path(DEFAULT_CONFIG)
    if config is None and not path.exists():
        return Endpoint(address=DEFAULT_ADMIN, token=token)
    try:
        found = find_admin(path)
    except ConfigError as error:
        fail(*map(str, error.problems), "give --admin and --token instead", code=BAD_USAGE)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        fail(f"{path}:1:1: cannot read: {reason}", code=BAD_USAGE)
    if found.admin is None:
        fail(f"{path} turns the admin endpoint off (router.admin: off)", code=BAD_USAGE)
    return attrs.evolve(_endpoint(found.admin, token), router=found.router)


def _endpoint(admin: Admin, token: str | None) -> Endpoint:
    if token is None and admin.token is not None:
        token = admin.token.reveal()
    address = admin.bind
    if isinstance(address, TcpAddress):
        address = TcpAddress(_ANYWHERE.get(address.host, address.host), address.port)
    return Endpoint(
        address=address,
        is_tls=admin.tls_cert is not None,
        certificate=admin.tls_cert,
        token=token,
    )


def _parse(text: str) -> Endpoint:
    is_tls = text.startswith("https://")
    place = urlsplit(text).netloc if text.startswith(("http://", "https://")) else text
    try:
        return Endpoint(address=Bind().parse(place), is_tls=is_tls)
    except UnfitError as error:
        raise click.BadParameter(f"{place!r} {error.reason}", param_hint="--admin") from None


def fail(*reasons: str, code: int = FAILED) -> NoReturn:
    """Prints the reasons, one a line, and ends the program."""
    print_lines(*reasons, err=True)
    raise SystemExit(code)


@contextmanager
def asking(endpoint: Endpoint, seconds: float = ANSWER_SECONDS) -> "Iterator[AdminClient]":
    """Opens a client for the length of the block; its errors end the program with 1.

    Args:
        endpoint: the router.
        seconds: time limit of each request.
    """
    client = AdminClient(endpoint, seconds)
    try:
        yield client
    except AdminError as error:
        fail(error.reason, *error.advice)
    finally:
        client.close()


@attrs.define(eq=False)
class AdminClient:
    """Asks a running router; one connection, kept open.

    Attributes:
        seconds: time limit of each request.
    """

    endpoint: Endpoint
    seconds: float = ANSWER_SECONDS
    _connection: http.client.HTTPConnection | None = attrs.field(default=None, init=False)

    def get(self, path: str, **query: object) -> Any:
        """Returns the JSON of a resource under /api/v1.

        Raises:
            AdminError: the router does not answer, or refuses.
        """
        given = {name: _text(value) for name, value in query.items() if value is not None}
        return self._ask("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(self, path: str, body: object = None) -> Any:
        """Posts to a resource under /api/v1, and returns the JSON of the answer.

        Raises:
            AdminError: the router does not answer, or refuses.
        """
        return self._ask("POST", path, body)

    def lines(self, path: str, body: object) -> Iterator[Any]:
        """Posts to a resource that answers line by line, and yields the JSON of each line.

        Raises:
            AdminError: the router does not answer, refuses, or the answer breaks off.
        """
        answer = self._send("POST", path, body)
        try:
            while line := answer.readline():
                if line.strip():
                    yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AdminError(f"the answer breaks off: {reason_of(error)}") from None

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._send(method, path, body)
        try:
            return json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AdminError(f"the answer breaks off: {reason_of(error)}") from None

    def _send(self, method: str, path: str, body: object) -> http.client.HTTPResponse:
        headers = {}
        octets = None
        if self.endpoint.token is not None:
            headers["Authorization"] = f"Bearer {self.endpoint.token}"
        if self.endpoint.router is not None:
            headers[ROUTER_HEADER] = quote(self.endpoint.router)
        if body is not None:
            headers["Content-Type"] = "application/json"
            octets = json.dumps(body).encode()
        answer = self._try(method, f"/api/v1/{path}", octets, headers)
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._refused(answer)
        return answer

    def _refused(self, answer: http.client.HTTPResponse) -> AdminError:
        reason = _reason(answer)
        if answer.status != http.HTTPStatus.MISDIRECTED_REQUEST:
            return AdminError(reason, answer.status)
        return AdminError(f"{self.endpoint}: {reason}", answer.status, (_ADVICE_ON_OTHERS,))

    def _try(
        self, method: str, path: str, octets: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """Sends a request; again if the connection kept open had been closed meanwhile."""
        is_kept = self._connection is not None
        connection = self._connection = self._connection or _connect(self.endpoint, self.seconds)
        try:
            connection.request(method, path, octets, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if is_kept and not isinstance(error, TimeoutError):
                return self._try(method, path, octets, headers)
            reason, is_late = _explain(error, self.endpoint), isinstance(error, TimeoutError)
            raise AdminError(reason, advice=(_ADVICE,), is_late=is_late) from None


def segment(text: str) -> str:
    """Percent-encodes a name as a segment of a path."""
    return quote(text, safe="")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(answer: http.client.HTTPResponse) -> str:
    try:
        detail = json.loads(answer.read())["detail"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"the router answers {answer.status} {answer.reason}"
    if answer.status == http.HTTPStatus.UNAUTHORIZED:
        return f"{detail}: give --token or set {TOKEN_VARIABLE}"
    return str(detail)


def _explain(error: Exception, endpoint: Endpoint) -> str:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return f"no router answers at {endpoint}: {reason or type(error).__name__}"


_ADVICE: Final = (
    "is it running? --admin, or router.admin in the file that --config names, says where it is"
)


_ADVICE_ON_OTHERS: Final = (
    "nothing was done; each router of a host needs a router.admin of its own: is that of the one in"
    " --config in use by the other ('admin.unavailable' in its log)? --admin asks whichever answers"
)


def _connect(endpoint: Endpoint, seconds: float) -> http.client.HTTPConnection:
    address = endpoint.address
    if isinstance(address, UnixAddress):
        return _UnixConnection(address.path, seconds)
    if not endpoint.is_tls:
        return http.client.HTTPConnection(address.host, address.port, timeout=seconds)
    context = ssl.create_default_context(cafile=endpoint.certificate)
    context.check_hostname = endpoint.certificate is None  # else it is this very certificate
    return http.client.HTTPSConnection(address.host, address.port, timeout=seconds, context=context)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Connects to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
