"""TLS sessions that are resumed by another context than the one that began them."""

import shutil
import ssl
from pathlib import Path

import attrs
import pytest

from router.net.tls import TlsSession, resumable
from router.net.tls_files import TlsFiles
from router.net.tls_stream import why_slower
from tests.support.planes import papers
from tests.support.tls_ends import Contexts, make_contexts, shake_hands

pytestmark = pytest.mark.skipif(why_slower() is not None, reason="needs compiled TLS streams")

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return make_contexts(tmp_path_factory.mktemp("papers"))


def _resumes(contexts: Contexts, first: ssl.SSLContext, second: ssl.SSLContext) -> bool:
    """Tells whether what a client has begun with one context is resumed by the other."""
    former = None
    for context in (first, second):
        server = TlsSession(context)
        client = TlsSession(contexts.client, "localhost", former)
        shake_hands(client, server)
        client.receive(server.outgoing.read())  # tickets of 1.3 come after the handshake
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.read(1)
        former = resumable(client.tls)
    return bool(client.tls.session_reused)


def _server(contexts: Contexts, tickets: bytes, version: ssl.TLSVersion) -> ssl.SSLContext:
    files = attrs.evolve(contexts.signed.server_files(), tickets=tickets)
    context = files.server_context()
    context.maximum_version = version
    return context


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_resumed_by_every_context_with_the_same_secret(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    one, other = (_server(contexts, b"secret", version) for _ in range(2))
    assert _resumes(contexts, one, other)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_not_resumed_with_another_secret(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    one = _server(contexts, b"secret", version)
    assert not _resumes(contexts, one, _server(contexts, b"another", version))
    assert not _resumes(contexts, one, _server(contexts, b"", version))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_ends_with_the_files_that_it_began_with(
    contexts: Contexts, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    def made(files: TlsFiles) -> ssl.SSLContext:
        context = files.server_context()
        context.maximum_version = version
        return context

    files = attrs.evolve(contexts.signed.server_files(verify=True), tickets=b"secret")
    copied = tmp_path / "same.pem"
    shutil.copy(contexts.signed.authorities, copied)
    assert _resumes(contexts, made(files), made(attrs.evolve(files, authorities=copied)))
    both = tmp_path / "more.pem"  # who signs clients' certificates has changed
    both.write_text(copied.read_text() + papers(tmp_path).authorities.read_text())
    assert not _resumes(contexts, made(files), made(attrs.evolve(files, authorities=both)))
    asks_nobody = attrs.evolve(files, verify=ssl.CERT_OPTIONAL)
    assert not _resumes(contexts, made(asks_nobody), made(files))
