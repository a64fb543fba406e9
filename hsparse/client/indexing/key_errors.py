"""Errors about keys, shapes and types that are also the language's: what numpy would raise.

Tests: tests/client/indexing/test_index_key.py.
"""

from __future__ import annotations

from hsparse.errors import BadRequest, TooLarge


class BadIndex(BadRequest, IndexError):
    """A key is malformed, or selects beyond the extent."""


class BadShape(BadRequest, ValueError):
    """Values do not fit the shape that they are for."""


class BadType(BadRequest, TypeError):
    """Values have a type that the dataset, or a form of result, cannot take."""


class UnknownLabel(BadRequest, KeyError):
    """An axis has no such label."""

    def __str__(self) -> str:
        return self.message


class ResultTooLarge(TooLarge, MemoryError):
    """A result would be larger than `max_bytes`."""
