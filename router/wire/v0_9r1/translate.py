"""Translation between this protocol and AMQP 1.0: the functions used by ``router.wire.hub``.

A message passes through 0-9-1's form, which has the same properties; the difference, the table of
headers, is ``router.wire.v0_9r1.tables``. What goes where: docs/translation-0-9r1.md.
"""

import attrs

from router.errors import DecodeError, MisuseError, TranslationError
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import marks
from router.wire.v0_9_1 import translate as basic
from router.wire.v0_9_1.content import ContentLayout
from router.wire.v0_9r1.content import is_plain, read_properties, write_properties
from router.wire.v1_0.sections import AnnotatedMessage

_CLUSTER_ID = str(marks.ANNOTATION_OF["cluster_id"])


def to_sections(content: bytes) -> AnnotatedMessage:
    """Translates a content into sections.

    Raises:
        TranslationError: the content is invalid; names the property.
    """
    return basic.to_sections(_to_0_9_1(content))


def from_sections(message: AnnotatedMessage) -> bytes:
    """Translates sections into a content.

    Raises:
        TranslationError: a part of the message cannot be expressed; names the part.
    """
    return _from_0_9_1(basic.from_sections(message))


def quick_to_sections(content: bytes) -> bytes | None:
    """Translates a content without headers as 0-9-1 does; None: it is not one."""
    return basic.quick_to_sections(content) if _is_plain(content) else None


def quick_from_sections(payload: bytes) -> bytes | None:
    """Translates sections without headers as 0-9-1 does; None: they have some."""
    content = basic.quick_from_sections(payload)
    return content if content is not None and _is_plain(content) else None


def _is_plain(content: bytes) -> bool:
    try:
        layout = contents.content_layout(content)
    except DecodeError:
        return False
    return is_plain(content[layout.route_end : layout.body_start])


def _to_0_9_1(content: bytes) -> bytes:
    try:
        layout = contents.content_layout(content)
        header = content[layout.route_end : layout.body_start]
        if is_plain(header):
            return content
        found = read_properties(header)
    except DecodeError as error:
        raise TranslationError("content-header", error.rule) from error
    if found.headers is not None and type(found.headers.get(_CLUSTER_ID)) is str:
        headers = dict(found.headers)
        cluster_id = headers.pop(_CLUSTER_ID)
        found = attrs.evolve(found, headers=headers or None, cluster_id=cluster_id)
    return _with_header(content, layout, contents.encode_properties(found))


def _with_header(content: bytes, layout: ContentLayout, properties: bytes) -> bytes:
    return b"".join(
        (
            content[: layout.route_end],
            contents.encode_content_header(layout.body_octets, properties),
            content[layout.body_start :],
        )
    )


def _from_0_9_1(content: bytes) -> bytes:
    layout = contents.content_layout(content)
    header = content[layout.route_end : layout.body_start]
    if is_plain(header):
        return content
    found = contents.header_properties(header)
    if found.cluster_id is not None:
        headers = {**(found.headers or {}), _CLUSTER_ID: found.cluster_id}
        found = attrs.evolve(found, headers=headers, cluster_id=None)
    try:
        written = write_properties(found)
    except MisuseError as error:
        raise TranslationError("headers", error.reason) from error
    return _with_header(content, layout, written)
