"""Headers that are planned, read again."""

from __future__ import annotations

import pytest

from hsparse.errors import TooLarge
from hsparse.format.hdf5.addressed import Addressed
from hsparse.format.hdf5.object_header import read_header
from hsparse.format.hdf5.planned_header import PlannedMessage, plan_header
from hsparse.format.hdf5.stored_file import StoredFile
from hsparse.format.hdf5.widths import Widths
from tests.format.hdf5.file_walk import FileBytes


@pytest.mark.parametrize("size", [0, 200, 60_000, 65_535])
@pytest.mark.parametrize("ordered", [False, True])
def test_messages_come_back(size: int, ordered: bool) -> None:
    messages = [
        PlannedMessage(1, Addressed(bytes(size), ()), 4, 3),
        PlannedMessage(5, Addressed(bytes(8), ((0, "a"),))),
    ]
    piece = plan_header("header", messages, attribute_order=ordered)
    assert piece.make is not None
    data = piece.make({"a": 96}.__getitem__)
    assert len(data) == piece.size
    header = FileBytes(data).run(read_header(StoredFile(len(data), 0, Widths(), 0, 2), 0))
    found = [(message.kind, bytes(message.data), message.flags, message.order) for message in header.messages]
    assert found == [
        (1, bytes(size), 4, 3 if ordered else None),
        (5, b"\x60" + bytes(7), 0, 0 if ordered else None),
    ]
    assert header.attribute_order == ordered


def test_a_message_that_is_too_long() -> None:
    with pytest.raises(TooLarge, match="0x01 has 65536 bytes; a file takes 65535"):
        plan_header("header", [PlannedMessage(1, Addressed(bytes(65536)))])
