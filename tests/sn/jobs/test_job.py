"""What a job's record means, by the time that has passed."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.sn.jobs.job import CANCEL, LOST_SECONDS, Job, Status, job_status, shown_job
from hsparse.sn.jobs.job_options import Kind


def record(kind: Kind = Kind.IMPORT, **fields: Any) -> dict[str, Any]:
    job = Job("j-1", kind, "ada", "/home/ada/a.h5", "s3://lab/a.h5", {"path": "x"})
    return job.new_record(1000.0) | fields


def test_a_new_record_has_what_was_asked_for() -> None:
    assert record()["source"] == "s3://lab/a.h5"
    assert record(Kind.EXPORT)["target"] == "s3://lab/a.h5"
    assert shown_job(record(**{CANCEL: True}), 1000.0) == record()


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING])
def test_without_a_sign_of_life_it_is_lost(status: Status) -> None:
    fields = {"status": status.value}
    assert job_status(record(**fields), 1000.0 + LOST_SECONDS) is status
    assert job_status(record(**fields), 1000.0 + LOST_SECONDS + 1) is Status.LOST


@pytest.mark.parametrize("status", [Status.DONE, Status.FAILED, Status.CANCELLED])
def test_what_has_ended_is_never_lost(status: Status) -> None:
    assert job_status(record(status=status.value, ended=1001.0), 1e10) is status


def test_what_to_do_about_a_lost_job() -> None:
    for kind, words in (
        (Kind.IMPORT, "POST it again with the option resume."),
        (Kind.EXPORT, "POST it again."),
    ):
        shown = shown_job(record(kind), 1e10)
        assert (shown["status"], shown["error"]["kind"]) == ("lost", "busy")
        assert shown["error"]["message"].endswith(words)
