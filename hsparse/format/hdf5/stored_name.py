"""Names as files have them: UTF-8 as a rule, and any other bytes as surrogates (`surrogateescape`), as in h5py."""

from __future__ import annotations

from hsparse.errors import BadRequest


def name_text(data: memoryview | bytes) -> str:
    """Return a name as text."""
    return bytes(data).decode("utf-8", "surrogateescape")


def name_bytes(text: str) -> bytes:
    """Return a name's bytes, without a zero at their end; `BadRequest` for a name that would end early."""
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise BadRequest(f"The name {text!r} has a zero character, which ends a name in a file.")
    return data
