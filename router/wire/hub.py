"""Translation between the protocols through AMQP 1.0's sections (DESIGN, the face of the engines).

Theory of operation. A message keeps its encoding until it leaves through an engine of another
protocol; that engine translates it once, here, through the sections of AMQP 1.0. Each protocol has
a module of two functions, found by name and imported when its first message is translated, so that
the protocols do not depend on each other and an unused one costs nothing. A protocol may have two
more functions that translate octets to octets for simple messages.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

import attrs

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.wire.v1_0.sections import AnnotatedMessage, decode_message, encode_message

Quick = Callable[[bytes], bytes | None]


@attrs.frozen
class Translator:
    """The translation functions of one protocol.

    Attributes:
        to_sections: raises ``TranslationError`` for a message without a form in AMQP 1.0.
        from_sections: raises ``TranslationError`` for a message without a form in the protocol.
        quick_to_sections: returns the encoded sections directly, or None if it cannot.
        quick_from_sections: the reverse.
    """

    to_sections: Callable[[bytes], AnnotatedMessage]
    from_sections: Callable[[AnnotatedMessage], bytes]
    quick_to_sections: Quick | None = None
    quick_from_sections: Quick | None = None


_MODULES: Final = {
    Protocol.AMQP_0_9_1: "router.wire.v0_9_1.translate",
    Protocol.AMQP_0_9R1: "router.wire.v0_9r1.translate",
    Protocol.AMQP_0_10: "router.wire.v0_10.translate",
    Protocol.AMQP_FAST: "router.wire.fast.translate",
}
"""Protocol → module with ``to_sections`` and ``from_sections``, perhaps the quick ones, too."""

_translators: dict[Protocol, Translator] = {
    Protocol.AMQP_1_0: Translator(decode_message, encode_message)
}


def register(protocol: Protocol, translator: Translator) -> None:
    """Sets the translator of a protocol, instead of its own module."""
    _translators[protocol] = translator


def _translator(protocol: Protocol) -> Translator:
    found = _translators.get(protocol)
    if found is None:
        try:
            module = import_module(_MODULES[protocol])
        except ImportError as error:
            raise TranslationError("protocol", f"{protocol} is not built in") from error
        found = Translator(
            module.to_sections,
            module.from_sections,
            getattr(module, "quick_to_sections", None),
            getattr(module, "quick_from_sections", None),
        )
        _translators[protocol] = found
    return found


def to_sections(protocol: Protocol, payload: bytes) -> AnnotatedMessage:
    """Translates a protocol's payload into sections.

    Raises:
        TranslationError: if the payload is invalid or has no form in AMQP 1.0.
    """
    try:
        return _translator(protocol).to_sections(payload)
    except DecodeError as error:
        raise TranslationError("payload", str(error)) from error


def from_sections(protocol: Protocol, message: AnnotatedMessage) -> bytes:
    """Translates sections into a protocol's payload.

    Raises:
        TranslationError: if the message has no form in the protocol.
    """
    return _translator(protocol).from_sections(message)


def translate(payload: bytes, source: Protocol, target: Protocol) -> bytes:
    """Translates a payload of one protocol to another's; the same octets if they are the same.

    Raises:
        TranslationError: as ``to_sections`` and ``from_sections``.
    """
    if source is target:
        return payload
    quick = None
    if target is Protocol.AMQP_1_0:
        quick = _translator(source).quick_to_sections
    elif source is Protocol.AMQP_1_0:
        quick = _translator(target).quick_from_sections
    if quick is not None:
        found = quick(payload)
        if found is not None:
            return found
    return from_sections(target, to_sections(source, payload))
