"""The shape of an extensible array: levels, where elements are, impossible parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.hdf5.extensible_shape import SHAPE, ExtensibleShape, Level


def test_levels_are_the_specifications() -> None:
    levels = SHAPE.levels()
    assert levels[:5] == (
        Level(1, 16, 0, 0),
        Level(1, 32, 16, 1),
        Level(2, 32, 48, 2),
        Level(2, 64, 112, 4),
        Level(4, 64, 240, 6),
    )
    assert len(levels) == 29
    assert sum(level.blocks * level.elements for level in levels) >= 2**32 - 16
    assert (SHAPE.direct, SHAPE.direct_blocks, SHAPE.addresses) == (4, 6, 31)
    assert SHAPE.info.hex() == "200404100a"


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_every_element_has_one_place(numbers: list[int]) -> None:
    found = zip(*(column.tolist() for column in SHAPE.find(np.array(numbers, np.uint64))), strict=True)
    for number, (level, block, place) in zip(numbers, found, strict=True):
        shape = SHAPE.levels()[level]
        assert block < shape.blocks
        assert place < shape.elements
        assert shape.start + block * shape.elements + place == number


@pytest.mark.parametrize(
    "parameters",
    [
        (32, 4, 0, 4, 10),
        (32, 4, 15, 4, 10),
        (32, 4, 16, 3, 10),
        (32, 4, 16, 0, 10),
        (63, 4, 16, 4, 10),
        (4, 4, 16, 4, 3),
        (32, 4, 16, 4, 0),
        (32, 4, 16, 4, 33),
        (5, 4, 16, 64, 4),
        (32, 4, 128, 4, 5),
    ],
)
def test_parameters_that_make_no_array_are_corrupt(parameters: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(Corrupt, match="parameters"):
        ExtensibleShape(*parameters)
