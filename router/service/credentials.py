"""Checks the files of certificates, keys and users that a configuration names, and its directory.

``config.load`` checks the text alone. Whether a certificate is valid, matches its key, or a line
names a user shows only when these files are read. ``load_usable`` reads them for all commands, so
``router run`` serves every configuration that ``router check`` passes, and an unusable file is a
problem at the option that names it.
"""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

from router.net.tls import TlsError
from router.net.tls_files import TlsFiles
from router.service.config import ConfigError, Problem, RouterConfig, load
from router.service.config.containers import Container
from router.service.config.listeners import ListenerSasl, ListenerTls, TlsVersion, VerifyClient
from router.service.config.options import Where
from router.service.config.process import Admin
from router.service.mesh import mesh_file_problems
from router.service.users import UserFileError, read_users

_TLS_VERSIONS: Final = {
    TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}
_VERIFY: Final = {
    VerifyClient.NO: ssl.CERT_NONE,
    VerifyClient.OPTIONAL: ssl.CERT_OPTIONAL,
    VerifyClient.REQUIRED: ssl.CERT_REQUIRED,
}


def load_usable(path: str | Path) -> RouterConfig:
    """Loads a configuration, and the files of certificates, keys and users that it names.

    Raises:
        ConfigError: with all problems, in the order of the file.
    """
    config = load(path)
    problems = tuple(_problems(config))
    if problems:
        raise ConfigError(problems)
    return config


def server_files(tls: ListenerTls, number: int, *, is_mesh: bool = False) -> TlsFiles:
    """Returns the TLS files of the listener with that number, counted from 0, or of the mesh's."""
    return TlsFiles(
        option="mesh.tls" if is_mesh else f"listeners[{number}].tls",
        certificate=tls.cert,
        key=tls.key,
        authorities=tls.ca,
        verify=_VERIFY[tls.verify_client],
        minimum_version=_TLS_VERSIONS[tls.min_version],
    )


def client_files(container: Container, name: str) -> TlsFiles:
    """Returns the TLS files of a container that is dialed with TLS."""
    return TlsFiles(
        option="mesh.tls" if container.is_mesh else f"containers.{name}.tls",
        certificate=container.tls.cert,
        key=container.tls.key,
        authorities=container.tls.ca,
        verify=ssl.CERT_REQUIRED if container.tls.verify else ssl.CERT_NONE,
        minimum_version=_TLS_VERSIONS[container.tls.min_version],
        has_websocket=any(url.path is not None for url in container.url),
    )


def admin_files(admin: Admin) -> TlsFiles | None:
    """Returns the TLS files of the admin endpoint; None: it speaks plain HTTP."""
    if admin.tls_cert is None:
        return None
    return TlsFiles(
        option="router.admin",
        prefix="tls_",
        certificate=admin.tls_cert,
        key=admin.tls_key,
        verify=ssl.CERT_NONE,
    )


@attrs.frozen
class TlsSection:
    """A TLS section of the configuration.

    Attributes:
        name: address of the listener, or name of the container; empty: it is the admin endpoint's.
        files: what it names.
        make: makes a context of them.
        where: where it stands.
    """

    name: str
    files: TlsFiles
    make: Callable[[TlsFiles], ssl.SSLContext]
    where: Where


def tls_sections(config: RouterConfig) -> Iterator[TlsSection]:
    """Yields the TLS sections of a file."""
    admin = config.router.admin
    files = None if admin is None else admin_files(admin)
    if admin is not None and files is not None:
        yield TlsSection("", files, TlsFiles.server_context, admin.where)
    for number, listener in enumerate(config.listeners):
        if listener.tls is not None:
            made = server_files(listener.tls, number, is_mesh=listener.is_mesh)
            yield TlsSection(str(listener.bind), made, TlsFiles.server_context, listener.tls.where)
    for name, container in config.containers.items():
        if any(url.is_tls for url in container.url):
            dialing = client_files(container, name)
            yield TlsSection(name, dialing, TlsFiles.client_context, container.tls.where)


def _problems(config: RouterConfig) -> Iterator[Problem]:
    yield from _state_problems(config)
    yield from mesh_file_problems(config)
    for section in tls_sections(config):
        yield from _tls_problems(section)
    for number, listener in enumerate(config.listeners):
        if listener.sasl is not None:
            yield from _user_problems(listener.sasl, number)


def _state_problems(config: RouterConfig) -> Iterator[Problem]:
    """Looks whether the state directory is one, or can be made."""
    state = config.router.state
    found = next((each for each in (state, *state.parents) if each.exists()), None)
    if found is not None and not found.is_dir():
        problem = f"router.state: {found} is a file; name a directory, which need not exist"
        yield Problem(config.router.where.of("state"), problem)


def _tls_problems(section: TlsSection) -> Iterator[Problem]:
    """Makes a TLS context of the files as a trial; the system's authorities need none."""
    files = section.files
    if files.authorities is None:
        if files.certificate is None:
            return
        files = attrs.evolve(files, verify=ssl.CERT_NONE)
    try:
        section.make(files)
    except TlsError as error:
        key = (error.option or "").rpartition(".")[2]
        yield Problem(section.where.of(key), str(error))


def _user_problems(sasl: ListenerSasl, number: int) -> Iterator[Problem]:
    if isinstance(sasl.users, Path):
        try:
            read_users(sasl.users)
        except UserFileError as error:
            yield Problem(sasl.where.of("users"), f"listeners[{number}].sasl.users: {error}")
