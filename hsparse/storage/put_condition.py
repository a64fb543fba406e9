"""What a conditional put asks of the file that is there."""

from __future__ import annotations

import os
from enum import IntEnum

from hsparse.errors import PreconditionFailed
from hsparse.storage.posix_file import file_etag


class Condition(IntEnum):
    """What a put asks of the object that is there."""

    NONE = 0
    ABSENT = 1
    MATCH = 2


def check_condition(condition: Condition, etag: str, key: str, current: os.stat_result | None) -> None:
    """Raise `PreconditionFailed` when `current`, the status of the key's file or None, is not as asked."""
    if condition is Condition.ABSENT and current is not None:
        raise PreconditionFailed(f"{key!r} exists already; read it and replace that state.")
    if condition is Condition.MATCH and (current is None or file_etag(current) != etag):
        raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")
