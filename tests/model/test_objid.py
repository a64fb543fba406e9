"""Keys: which are chunks', and which other servers of the schema take for chunks'."""

from __future__ import annotations

import pytest
from h5json.objid import isS3ObjKey

from hsparse.clock import SystemClock
from hsparse.model.objid import (
    chunk_key,
    chunk_name,
    chunk_of_key,
    is_map_key,
    map_key,
    new_id,
    new_root_id,
    storage_key,
    tree_prefix,
)

CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
DATASET = new_id("datasets", ROOT, CLOCK)


@pytest.mark.parametrize(("scaled", "name"), [((), "0"), ((3,), "3"), ((0, 12, 5), "0_12_5")])
def test_a_chunk_is_named_by_its_coordinates(scaled: tuple[int, ...], name: str) -> None:
    assert chunk_name(scaled) == name
    assert chunk_key(DATASET, scaled) == tree_prefix(DATASET) + name
    assert chunk_of_key(chunk_key(DATASET, scaled)) == (scaled or (0,))
    assert isS3ObjKey(chunk_key(DATASET, scaled))


def test_nobody_takes_a_chunk_map_for_a_chunk_and_it_goes_with_the_dataset() -> None:
    key = map_key(DATASET)
    assert not isS3ObjKey(key)
    assert chunk_of_key(key) is None
    assert is_map_key(key)
    for prefix in (tree_prefix(DATASET), tree_prefix(ROOT)):
        assert key.startswith(prefix)
    for other in (chunk_key(DATASET, (1, 2)), storage_key(DATASET), storage_key(ROOT)):
        assert not is_map_key(other)
