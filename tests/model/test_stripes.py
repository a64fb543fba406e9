"""File numbers: which stripe a chunk belongs to, for ever."""

from __future__ import annotations

import pytest
from h5json.objid import isS3ObjKey
from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.ids import (
    chunk_key,
    chunk_name,
    chunk_of_key,
    chunk_prefix,
    is_map_key,
    storage_key,
    tree_of_key,
)
from hsparse.model.stripes import MAX_STRIPES, Stripes

DATASET = "d-3c448a8a-6c0b2447-9594-1269a1-049963"
SCALED = st.lists(st.integers(0, 2**40), min_size=1, max_size=5)


@given(st.integers(2, MAX_STRIPES), SCALED, st.data())
def test_as_many_chunks_in_a_row_as_stripes_are_each_in_another(
    count: int, scaled: list[int], data: st.DataObject
) -> None:
    dim = data.draw(st.integers(0, len(scaled) - 1))
    row = [[*scaled[:dim], scaled[dim] + step, *scaled[dim + 1 :]] for step in range(count)]
    assert sorted(map(Stripes(count).file_number, row)) == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("count", "scaled", "number"),
    [
        (2, (0,), 1),
        (2, (7,), 2),
        (8, (3, 4), 4),
        (8, (12345678901, 9), 3),
        (10, (1, 2, 3), 5),
        (1024, (5, 6, 7, 8), 531),
    ],
)
def test_file_numbers_never_change(count: int, scaled: tuple[int, ...], number: int) -> None:
    assert Stripes(count).file_number(scaled) == number


@given(st.integers(2, MAX_STRIPES), SCALED)
def test_a_chunk_in_a_stripe_is_one_of_its_dataset_and_nobody_elses(count: int, scaled: list[int]) -> None:
    stripes = Stripes(count)
    key = chunk_key(DATASET, scaled, stripes)
    assert key == f"{chunk_prefix(DATASET)}.stripe/{stripes.file_number(scaled)}/{chunk_name(scaled)}"
    assert chunk_of_key(key) == tuple(scaled)
    assert tree_of_key(key) == tree_of_key(storage_key(DATASET))
    assert key > storage_key(DATASET), "a sweep lists the record first"
    assert not is_map_key(key)
    assert not isS3ObjKey(key)
