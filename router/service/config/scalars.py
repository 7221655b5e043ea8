"""The kinds of values that are written as one text: words, numbers, durations, sizes, paths."""

import enum
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import attrs

from router.regular import check_regular
from router.service.config.document import Node, Scalar
from router.service.config.hints import unknown_word
from router.service.config.kinds import REFERENCE_SCHEMA, Reading, ScalarKind, Schema, shortened
from router.service.config.problems import UnfitError
from router.service.config.references import Secret

E = TypeVar("E", bound=enum.StrEnum)


@attrs.frozen
class Text(ScalarKind[str]):
    """A text that is not empty.

    Attributes:
        pattern: regular expression that the whole text matches.
        what: description of the text, for people.
    """

    pattern: str = r"(?s).+"
    what: str = "a text"
    kept: frozenset[str] = frozenset()

    def parse(self, text: str) -> str:
        """Checks the text against the pattern."""
        if not re.fullmatch(self.pattern, text):
            raise UnfitError(f"is not {self.what}" if text else "is empty")
        return text

    def wanted(self) -> str:
        """The description given."""
        return self.what

    def show(self, value: str) -> str:
        """Quotes a text that YAML would not read as a string."""
        return value if re.fullmatch(r"[\w./$][\w./:@${} -]*", value) else json.dumps(value)


@attrs.frozen
class SecretText(ScalarKind[Secret]):
    """A text that is never shown."""

    is_secret = True

    def parse(self, text: str) -> Secret:
        """Accepts any text that is not empty."""
        if not text:
            raise UnfitError("is empty")
        return Secret(text)

    def wanted(self) -> str:
        """Names the two ways to keep a secret out of the file."""
        return "a secret, best as ${NAME} or ${file:PATH}"


@attrs.frozen
class PostgresUrl(ScalarKind[Secret]):
    """The URL of a PostgreSQL database, which may hold a password."""

    is_secret = True

    def parse(self, text: str) -> Secret:
        """Accepts the schemes of libpq."""
        if not text.startswith(("postgresql://", "postgres://")):
            raise UnfitError("does not begin with postgresql://")
        return Secret(text)

    def wanted(self) -> str:
        """Shows the form."""
        return "postgresql://USER@HOST/DATABASE, a password in it as ${NAME} or ${file:PATH}"


@attrs.frozen
class Flag(ScalarKind[bool]):
    """True or false."""

    def parse(self, text: str) -> bool:
        """Accepts the words of YAML 1.1 as well."""
        match text.lower():
            case "true" | "yes" | "on":
                return True
            case "false" | "no" | "off":
                return False
        raise UnfitError("is neither true nor false")

    def wanted(self) -> str:
        """The two words."""
        return "true or false"

    def schema(self) -> Schema:
        """A boolean."""
        return {"anyOf": [{"type": "boolean"}, REFERENCE_SCHEMA]}

    def show(self, value: bool) -> str:
        """Writes the word."""
        return "true" if value else "false"


@attrs.frozen
class Whole(ScalarKind[int]):
    """A whole number within bounds."""

    minimum: int = 0
    maximum: int = 2**32 - 1
    unit: str | None = None

    def parse(self, text: str) -> int:
        """Accepts decimal digits, with ``_`` as a separator."""
        if not re.fullmatch(r"[0-9]{1,15}(_[0-9]{1,15}){0,5}", text):
            auto = "; leave the key out for its default" if text.isalpha() else ""
            raise UnfitError(f"is not {self.wanted()}{auto}")
        return in_bounds(int(text), self.minimum, self.maximum)

    def wanted(self) -> str:
        """Names the bounds."""
        return f"a whole number from {self.minimum} to {self.maximum}"

    def schema(self) -> Schema:
        """An integer within the bounds."""
        number = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        return {"anyOf": [number, REFERENCE_SCHEMA]}


N = TypeVar("N", int, float)


def in_bounds(value: N, minimum: N, maximum: N) -> N:
    """Returns the value if it is within the bounds.

    Raises:
        UnfitError: it is out of bounds.
    """
    if value < minimum:
        raise UnfitError(f"is below the minimum, {minimum:g}")
    if value > maximum:
        raise UnfitError(f"is above the maximum, {maximum:g}")
    return value


_SECONDS_PER_UNIT: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@attrs.frozen
class Seconds(ScalarKind[float]):
    """A duration: ``30s``, ``5m``, ``250ms``, ``1h``, ``1d``, or a number of seconds."""

    minimum: float = 0.0
    maximum: float = 10 * 365 * 86400.0
    unit = "seconds"

    def parse(self, text: str) -> float:
        """Returns seconds."""
        match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|)", text)
        if match is None:
            raise UnfitError(f"is not {self.wanted()}")
        seconds = float(match.group(1)) * _SECONDS_PER_UNIT[match.group(2)]
        return in_bounds(round(seconds, 9), self.minimum, self.maximum)

    def wanted(self) -> str:
        """Returns examples."""
        return "a duration such as 30s, 5m or 250ms"

    def schema(self) -> Schema:
        """A number of seconds, or a text with a suffix."""
        number = {"type": "number", "minimum": self.minimum, "maximum": self.maximum}
        suffixed = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)?$"}
        return {"anyOf": [number, suffixed, REFERENCE_SCHEMA]}

    def show(self, value: float) -> str:
        """Writes it in the largest unit that leaves a whole number, down to milliseconds."""
        milliseconds = round(value * 1000)
        for suffix in ("d", "h", "m", "s", "ms"):
            amount, rest = divmod(milliseconds, round(_SECONDS_PER_UNIT[suffix] * 1000))
            if amount and not rest:
                return f"{amount}{suffix}"
        return "0s"


_OCTETS_PER_UNIT: Final = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


@attrs.frozen
class Octets(ScalarKind[int]):
    """A size: ``64KiB``, ``1MiB``, ``2GB``, or a number of octets."""

    minimum: int = 0
    maximum: int = 2**50
    unit = "octets"

    def parse(self, text: str) -> int:
        """Returns octets."""
        match = re.fullmatch(r"([0-9]{1,16})([kKMG]i?B|B|)", text)
        if match is None or match.group(2) not in _OCTETS_PER_UNIT:
            raise UnfitError(f"is not {self.wanted()}")
        octets = int(match.group(1)) * _OCTETS_PER_UNIT[match.group(2)]
        return in_bounds(octets, self.minimum, self.maximum)

    def wanted(self) -> str:
        """Returns examples."""
        return "a size such as 64KiB, 1MiB or 2GB"

    def schema(self) -> Schema:
        """A number of octets, or a text with a suffix."""
        number = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        suffixed = {"type": "string", "pattern": r"^[0-9]+([kKMG]B|[KMG]iB|B)?$"}
        return {"anyOf": [number, suffixed, REFERENCE_SCHEMA]}

    def show(self, value: int) -> str:
        """Writes it in the largest binary unit that leaves a whole number."""
        for suffix in ("GiB", "MiB", "KiB"):
            if value and value % _OCTETS_PER_UNIT[suffix] == 0:
                return f"{value // _OCTETS_PER_UNIT[suffix]}{suffix}"
        return str(value)


@attrs.frozen
class OneOf(ScalarKind[E]):
    """One of the words of an enumeration, or of some of them."""

    words: Iterable[E]

    def parse(self, text: str) -> E:
        """Returns the member."""
        for word in self.words:
            if word == text:
                return word
        words = [str(word) for word in self.words]
        raise UnfitError(f"is not {self.wanted()}{unknown_word(text, words)}")

    def wanted(self) -> str:
        """Lists the words."""
        return f"one of {', '.join(self.words)}"

    def schema(self) -> Schema:
        """The words."""
        return {"anyOf": [{"enum": [str(word) for word in self.words]}, REFERENCE_SCHEMA]}


def _unreadable(node: Node, path: Path, error: OSError) -> str:
    """Returns why a file cannot be read; a text from a reference is not quoted."""
    assert isinstance(node, Scalar)
    if "${file:" in node.text:
        why = "${file:...} gives what the file holds; write the path alone"
        return f"'{shortened(node.text)}' is no path of a file: {why}"
    named = shortened(node.text) if "${" in node.text else path
    return f"cannot read {named}: {error.strerror}"


@attrs.frozen
class FilePath(ScalarKind[Path]):
    """A path; a relative one starts from the directory of the configuration file.

    Attributes:
        must_exist: the file must exist and be readable.
    """

    must_exist: bool = True

    def read(self, node: Node, at: str, reading: Reading) -> Path:
        """Resolves the path."""
        path = reading.sources.directory / super().read(node, at, reading)
        if self.must_exist:
            try:
                check_regular(path)
            except OSError as error:
                raise UnfitError(_unreadable(node, path, error)) from None
            except ValueError:
                raise UnfitError("is not a path") from None
        return path

    def parse(self, text: str) -> Path:
        """Accepts any text that can be a path."""
        if not text or "\0" in text:
            raise UnfitError("is not a path")
        return Path(text)

    def wanted(self) -> str:
        """A path."""
        return "a path"
