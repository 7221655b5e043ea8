"""Writes the reference: ``python -m tests.reference``."""

from tests.reference.files import write

write()
