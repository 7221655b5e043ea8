"""``${NAME}`` and ``${file:PATH}`` inside values, and the type of secret values.

References are replaced in the text of a single value after YAML was parsed, so an environment
variable cannot change the structure of the file. ``$${`` stands for a literal ``${``. Files are
read again each time that the configuration is loaded; one trailing line break is cut, and a
relative path starts from the directory of the configuration file.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from router.model.text import is_text
from router.regular import read_regular
from router.service.config.problems import UnfitError

LARGEST_FILE_OCTETS: Final = 1 << 20
"""A file behind ``${file:...}`` holds a password or a token, not a disk image."""

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Secret:
    """A text that only ``reveal`` returns; its ``repr`` and ``str`` hide it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Returns the text. Never for a log, an error or a page."""
        return self._text

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@attrs.frozen
class Part:
    """A piece of an expanded value.

    Attributes:
        is_reference: it replaces a ``${...}``.
    """

    text: str
    is_reference: bool


@attrs.frozen
class Sources:
    """The sources of references.

    Attributes:
        environment: for ``${NAME}``.
        directory: the base of relative paths.
    """

    environment: Mapping[str, str] = attrs.field(repr=False)
    directory: Path

    def expand(self, text: str, kept: frozenset[str] = frozenset()) -> list[Part]:
        """Replaces the references in a text.

        Args:
            text: as written in the file.
            kept: names of references that are kept, because they are replaced later.

        Raises:
            UnfitError: a reference is malformed or cannot be resolved.
        """
        parts: list[Part] = []
        end = 0
        for match in _REFERENCE.finditer(text):
            parts.append(Part(text[end : match.start()], False))
            end = match.end()
            if match.group() == "$${":
                parts.append(Part("${", False))
            elif match.group(1) in kept:
                parts.append(Part(match.group(), False))
            else:
                parts.append(Part(self._look_up(match.group(1)), True))
        parts.append(Part(text[end:], False))
        return [part for part in parts if part.text or part.is_reference]

    def _look_up(self, name: str | None) -> str:
        if name is None:
            raise UnfitError("has '${' without '}'; a literal '${' is written '$${'")
        if name.startswith("file:"):
            return self._read(name.removeprefix("file:"))
        if not _NAME.fullmatch(name):
            raise UnfitError(f"has '${{{name}}}', which is neither ${{NAME}} nor ${{file:PATH}}")
        if name not in self.environment:
            raise UnfitError(f"needs the environment variable {name}, which is not set")
        value = self.environment[name]
        if not is_text(value):
            raise UnfitError(f"needs the environment variable {name}, which is not UTF-8")
        return value

    def _read(self, path: str) -> str:
        try:
            octets = read_regular(self.directory / path, LARGEST_FILE_OCTETS + 1)
            if len(octets) > LARGEST_FILE_OCTETS:
                raise UnfitError(f"needs the file {path}, which exceeds 1 MiB")
            return re.sub(r"\r?\n\Z", "", octets.decode())
        except OSError as error:
            reason = error.strerror or "it cannot be read"
            raise UnfitError(f"needs the file {path}: {reason}") from None
        except ValueError:  # not UTF-8, or a path that no system has
            raise UnfitError(f"needs the file {path}, which is not text in UTF-8") from None
