"""A range of an object's bytes, as `ObjectStore.get_range` names it."""

from __future__ import annotations

from hsparse.errors import BadRequest


def check_range(key: str, start: int, length: int | None) -> None:
    """Raise `BadRequest` for a range no object could have: a length below 1, or one that cuts a suffix.

    HTTP (RFC 9110, 14.1.2) can name neither an empty range nor the middle of an object counted from its
    end, so no store takes them.
    """
    if length is None:
        return
    if length < 1:
        raise BadRequest(f"The range of {key!r} has length {length}; ask for at least one byte.")
    if start < 0 and length < -start:
        raise BadRequest(
            f"The range of {key!r} starts {-start} bytes before the end but has length {length}; "
            "read the whole suffix."
        )


def resolve_range(key: str, start: int, length: int | None, size: int) -> tuple[int, int]:
    """Return the first byte and the number of bytes of a range of an object of `size` bytes.

    `BadRequest` when the range holds no byte of the object, as an object store answers 416.
    """
    check_range(key, start, length)
    first = max(size + start, 0) if start < 0 else start
    if first >= size:
        raise BadRequest(f"The range of {key!r} starts at byte {start}, but the object has {size} bytes.")
    return first, size - first if length is None else min(length, size - first)
