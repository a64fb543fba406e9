"""Planned headers and global heaps, read again."""

from __future__ import annotations

import pytest

from hsparse.errors import TooLarge
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.plan.planned_structures import (
    PlannedMessage,
    plan_object_header,
)


def test_a_message_that_is_too_long() -> None:
    with pytest.raises(TooLarge, match="0x01 has 65536 bytes; the limit is 65535"):
        plan_object_header("header", [PlannedMessage(1, Addressed(bytes(65536)))])
