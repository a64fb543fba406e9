"""An attribute as records have it, for tests in which only its value matters, and stored records without checksums."""

from __future__ import annotations

from typing import Any

from hsparse.wire.message import Record


def stored_attribute(value: Any) -> Record:
    """Return the stored form of a scalar attribute; no test asks whether the value fits the type."""
    return {"type": "H5T_STD_I64LE", "shape": {"class": "H5S_SCALAR"}, "value": value}


def remove_checksum(data: bytes) -> bytes:
    """Return the JSON of a stored record without its checksum."""
    return data[: data.rindex(b",\n")] + b"}"
