"""Certificates that a router uses: when each has to be renewed, and which changes were refused."""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs
import structlog

from router.net.tls_files import TlsContext
from router.net.validity import Validity, why_refused
from router.routes.route import Position
from router.service.config import Problem, RouterConfig
from router.service.credentials import TlsSection, tls_sections

RENEW: Final = (
    "write a renewed certificate, with its chain and key, to the same files: the router takes them"
    " over by itself, and new connections use them"
)

WRONG_CLOCK: Final = (
    "peers refuse it: compare the clocks of this host and of the authority, or write a certificate"
    " that is valid to the same files until then"
)


@attrs.frozen
class TlsRecord:
    """The certificates of a process.

    Attributes:
        in_use: until when they are valid.
        refused: why changed TLS files are not used, by option and file.
    """

    in_use: tuple[Validity, ...] = ()
    refused: tuple[str, ...] = ()

    @classmethod
    def of(cls, contexts: Iterable[TlsContext]) -> "TlsRecord":
        """Looks at the files of contexts, and returns what follows."""
        seen = tuple(contexts)
        for each in seen:
            each.current()
        in_use = (validity for each in seen for validity in each.validities)
        refused = (each.trouble for each in seen if each.trouble is not None)
        return cls(tuple(dict.fromkeys(in_use)), tuple(dict.fromkeys(refused)))

    @classmethod
    def merged(cls, records: Iterable["TlsRecord"]) -> "TlsRecord":
        """Returns what several processes use; of a file, what is valid for the shortest time."""
        found: dict[tuple[str, str], Validity] = {}
        refused: dict[str, None] = {}
        for record in records:
            refused |= dict.fromkeys(record.refused)
            for each in record.in_use:
                known = found.setdefault((each.option, each.file), each)
                if each.ends < known.ends:
                    found[each.option, each.file] = each
        return cls(tuple(found.values()), tuple(refused))


NO_TLS: Final = TlsRecord()


def tell_in_use(record: TlsRecord, now: float) -> None:
    """Logs which certificates in use are not valid, or will not be before long.

    Others may be in the files, and refused.
    """
    log = structlog.get_logger()
    for each in record.in_use:
        if _is_noted(each, now):
            log.warning("certificate.due", reason=each.describe(now))


def certificate_notes(config: RouterConfig, now: float) -> Iterator[Problem]:
    """Yields which certificates of a configuration are not valid, or will not be before long.

    Args:
        config: its files are read.
        now: in seconds since 1970.
    """
    told = set()
    for section in tls_sections(config):
        for each in section.files.validities():
            place = each.option, each.file
            if _is_noted(each, now) and place not in told:
                told.add(place)
                yield Problem(_place(section, each), each.describe(now))


def invalid_anew(old: RouterConfig, new: RouterConfig, now: float) -> Iterator[Problem]:
    """Yields which other files a reload would bring whose certificate is not valid.

    Only where there was one that is valid: what is not may as well be replaced by something else.
    Files that were changed in place are watched by ``TlsContext``.

    Args:
        old: what runs.
        new: what the file says.
        now: in seconds since 1970.
    """
    before = {each.name: each.files for each in tls_sections(old)}
    for section in tls_sections(new):
        files = before.get(section.name)
        if files is None or files == section.files:
            continue
        in_use = {_key(each): each for each in files.validities()}
        for each in section.files.validities():
            known = in_use.get(_key(each))
            if known is None or known.file == each.file:
                continue
            if (reason := why_refused(known, each, now)) is not None:
                yield Problem(_place(section, each), reason)


def _is_noted(validity: Validity, now: float) -> bool:
    return validity.is_due(now) or validity.is_early(now)


def _key(validity: Validity) -> str:
    return validity.option.rpartition(".")[2]


def _place(section: TlsSection, validity: Validity) -> Position:
    return section.where.of(_key(validity))
