"""Ids of objects and jobs, and their keys: which are chunks', and which other servers take for chunks'."""

from __future__ import annotations

import pytest
from h5json.objid import isS3ObjKey

from hsparse.clock import ManualClock, SystemClock
from hsparse.errors import NotFound
from hsparse.model.ids import (
    check_job_id,
    chunk_key,
    chunk_of_key,
    is_job_id,
    is_map_key,
    job_id_of_key,
    job_key,
    job_key_prefix,
    map_key,
    new_id,
    new_job_id,
    new_root_id,
    storage_key,
    tree_prefix,
)

CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
DATASET = new_id("datasets", ROOT, CLOCK)


def test_nobody_takes_a_chunk_map_for_a_chunk_and_it_goes_with_the_dataset() -> None:
    key = map_key(DATASET)
    assert not isS3ObjKey(key)
    assert chunk_of_key(key) is None
    assert is_map_key(key)
    for prefix in (tree_prefix(DATASET), tree_prefix(ROOT)):
        assert key.startswith(prefix)
    for other in (chunk_key(DATASET, (1, 2)), storage_key(DATASET), storage_key(ROOT)):
        assert not is_map_key(other)


def test_a_key_leads_to_its_job_and_nobody_takes_it_for_an_object() -> None:
    id = new_job_id("ada", ManualClock())
    assert check_job_id(id) == id
    assert is_job_id(id)
    assert storage_key(id) == job_key(id)
    assert job_id_of_key(job_key(id)) == id
    assert job_key(id).startswith(job_key_prefix("ada"))
    assert not job_key(id).startswith(job_key_prefix("ben"))
    assert not isS3ObjKey(job_key(id))
    assert chunk_of_key(job_key(id)) is None


def test_ids_of_a_user_sort_by_age() -> None:
    clock = ManualClock()
    ids = []
    for _ in range(3):
        clock.time += 0.001
        ids.append(new_job_id("ada", clock))
    assert sorted(ids) == ids


@pytest.mark.parametrize(
    "id", ["", "x", "j-", "j-../../home", "g-00000000-00000000-0000-000000-000000", "j-\ud800"]
)
def test_what_is_no_id_is_no_job(id: str) -> None:
    with pytest.raises(NotFound):
        check_job_id(id)
