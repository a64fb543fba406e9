"""Ids of jobs and their keys."""

from __future__ import annotations

import pytest
from h5json.objid import isS3ObjKey

from hsparse.clock import ManualClock
from hsparse.errors import NotFound
from hsparse.model.job_id import check_job_id, is_job, job_key, job_of_key, new_job_id, owner_keys
from hsparse.model.objid import chunk_of_key, storage_key


def test_a_key_leads_to_its_job_and_nobody_takes_it_for_an_object() -> None:
    id = new_job_id("ada", ManualClock())
    assert check_job_id(id) == id
    assert is_job(id)
    assert storage_key(id) == job_key(id)
    assert job_of_key(job_key(id)) == id
    assert job_key(id).startswith(owner_keys("ada"))
    assert not job_key(id).startswith(owner_keys("ben"))
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
