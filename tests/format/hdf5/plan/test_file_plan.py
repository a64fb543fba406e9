"""Ranges of planned files."""

from __future__ import annotations

import pytest

from hsparse.errors import BadRequest
from hsparse.hdf5.format.messages.file_type import file_type
from hsparse.hdf5.format.messages.layout_message import ContiguousLayout
from hsparse.hdf5.format.plan.file_plan import FilePiece, FilePlan
from hsparse.hdf5.format.plan.planned_object import (
    PlannedDataset,
    PlannedGroup,
    PlannedLink,
    PlannedTarget,
    plan_file,
    plan_layout,
)
from tests.format.hdf5.plan_strategies import INT, simple


def test_data_of_others_are_not_read() -> None:
    stored = file_type(INT)
    objects = [
        PlannedGroup("root", [PlannedLink("d", PlannedTarget("d"))]),
        PlannedDataset("d", stored, simple(10), plan_layout(ContiguousLayout(0, 40), "data")),
    ]
    plan = plan_file(objects, "root", [FilePiece("data", 40)])
    address = plan.address_of("data")
    assert [(start, piece.key) for start, piece in plan.pieces_in(address, address + 8)] == [
        (address, "data")
    ]
    assert len(plan.read(0, address)) == address
    with pytest.raises(BadRequest, match="'data' are not in the plan"):
        plan.read(0, plan.size)


def test_what_no_plan_can_be() -> None:
    with pytest.raises(BadRequest, match="same key"):
        FilePlan([FilePiece("a", 1), FilePiece("a", 1)], "a")
    with pytest.raises(AssertionError, match="'a' has 3 bytes, 4 were planned"):
        FilePlan([FilePiece("a", 4, lambda _: b"abc")], "a").read(48, 50)
