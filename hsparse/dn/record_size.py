"""The limit of a record's size: a record is read, kept and sent whole, at about eight times its bytes of memory.

What makes a record larger is measured; what makes it smaller is always carried out, also beyond the limit.
"""

from __future__ import annotations

import orjson

from hsparse.errors import TooLarge
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject, PutAcl, PutAttributes, PutLinks, RecordChange

SMALL = 64 * 1024
"""A change of fewer bytes is measured only if the record has half of the limit already: encoding it costs as much."""


def grown_bytes(change: RecordChange) -> int:
    """Return how many bytes a change may add to its record, 0 for what adds none to speak of."""
    match change:
        case PutAttributes(_, attributes):
            return len(orjson.dumps(attributes))
        case PutLinks(_, links, _):
            return len(orjson.dumps(links))
        case CreateObject(_, record):
            return len(orjson.dumps(record))
        case PutAcl(_, user):
            return len(user.encode())
    return 0


def must_measure(growth: int, stored: int | None, most: int) -> bool:
    """Say whether a record of `stored` bytes, None if that is not known, may exceed `most` by this growth."""
    return growth > SMALL or (growth > 0 and (stored is None or stored > most // 2))


def check_size(record: Record, most: int) -> None:
    """Raise `TooLarge` for a record of more than `most` bytes."""
    size = len(orjson.dumps(record))
    if size > most:
        raise TooLarge(
            f"The record of {record.get('id', 'a domain')} would have {size} bytes with its attributes and links; the "
            f"limit is {most} (max_record_size). Keep large values in datasets, and many links in several groups."
        )
