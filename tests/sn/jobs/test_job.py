"""Options of jobs are flags of the commands; the status that a job's record means, by the time that has passed."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.cli.main import parse_arguments
from hsparse.errors import BadRequest
from hsparse.hdf5.jobs.job import (
    CANCEL,
    LOST_SECONDS,
    OPTIONS,
    Job,
    JobKind,
    JobStatus,
    check_options,
    flags,
    job_json,
    job_status,
)

GIVEN: list[tuple[JobKind, dict[str, Any]]] = [
    (
        JobKind.IMPORT,
        {"events": True, "resume": True, "as_is": True, "path": "--force", "part": "1000", "requests": 3},
    ),
    (JobKind.EXPORT, {"layout": "structured", "revision": "rfc-2025-10", "force": True}),
    (JobKind.EXPORT, {"matrices": "anndata-csr", "filter": "shuffle+gzip=4", "virtual": "copied"}),
]


@pytest.mark.parametrize("kind", JobKind)
def test_all_options_are_given(kind: JobKind) -> None:
    assert {name for one, options in GIVEN if one is kind for name in options} == set(OPTIONS[kind])


def test_a_copy_is_of_one_path_to_another() -> None:
    job = Job("j-1", JobKind.COPY, "ada", "/home/ada/b*.h5", "/home/ada/a[1].h5", {})
    parsed = parse_arguments(job.arguments(job.place, "http://127.0.0.1:1", ["/x/"]))
    assert (parsed.sources, parsed.target, parsed.exact) == ([job.place], job.domain, True)
    assert (parsed.piped, parsed.progress, parsed.endpoint) == (True, "json", "http://127.0.0.1:1")


@pytest.mark.parametrize(("kind", "options"), GIVEN)
def test_the_command_takes_every_option(kind: JobKind, options: dict[str, Any]) -> None:
    job = Job("j-1", kind, "ada", "/home/ada/a.h5", "file:///x/a.h5", check_options(kind, options))
    parsed = parse_arguments(job.arguments("/x/a.h5", "http://127.0.0.1:1"))
    # --filter may be repeated, the option has all of them
    found = {name: getattr(parsed, name) for name in options} | (
        {"filter": "+".join(parsed.filter)} if "filter" in options else {}
    )
    assert found == options
    assert (str(parsed.file), parsed.domain) == ("/x/a.h5", "/home/ada/a.h5")
    assert getattr(parsed, "sources", None) is None
    placed = parse_arguments(job.arguments("/x/a.h5", "http://127.0.0.1:1", ["/x/", "s3://lab/"]))
    assert getattr(placed, "sources", None) == (["/x/", "s3://lab/"] if kind is JobKind.IMPORT else None)
    assert (parsed.piped, parsed.progress, parsed.endpoint) == (True, "json", "http://127.0.0.1:1")


def test_what_is_not_wanted_is_no_flag() -> None:
    assert flags(JobKind.IMPORT, {"resume": False, "requests": 1}) == ["--requests=1"]
    assert check_options(JobKind.EXPORT, None) == {}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (JobKind.IMPORT, "resume"),
        (JobKind.IMPORT, {"piped": True}),
        (JobKind.IMPORT, {"endpoint": "http://x"}),
        (JobKind.IMPORT, {"requests": True}),
        (JobKind.IMPORT, {"requests": 65}),
        (JobKind.IMPORT, {"path": ""}),
        (JobKind.IMPORT, {"path": "x" * 2000}),
        (JobKind.IMPORT, {"path": "a/b"}),
        (JobKind.EXPORT, {"layout": "other"}),
        (JobKind.EXPORT, {"virtual": "mapped"}),
        (JobKind.EXPORT, {"layout": "structured", "matrices": "anndata-csr"}),
        (JobKind.EXPORT, {"layout": "stock", "revision": "rfc-2025-10"}),
        (JobKind.EXPORT, {"revision": "rfc-2025-10"}),
        (JobKind.EXPORT, {"layout": ["stock"]}),
        (JobKind.EXPORT, {"force": "yes"}),
    ],
)
def test_what_does_not_fit(kind: JobKind, options: Any) -> None:
    with pytest.raises(BadRequest):
        check_options(kind, options)


def record(kind: JobKind = JobKind.IMPORT, **fields: Any) -> dict[str, Any]:
    job = Job("j-1", kind, "ada", "/home/ada/a.h5", "s3://lab/a.h5", {"path": "x"})
    return job.new_record(1000.0) | fields


def test_a_new_record_has_what_was_asked_for() -> None:
    assert record()["source"] == "s3://lab/a.h5"
    assert record(JobKind.EXPORT)["target"] == "s3://lab/a.h5"
    assert job_json(record(**{CANCEL: True}), 1000.0) == record()


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING])
def test_without_a_sign_of_life_it_is_lost(status: JobStatus) -> None:
    fields = {"status": status.value}
    assert job_status(record(**fields), 1000.0 + LOST_SECONDS) is status
    assert job_status(record(**fields), 1000.0 + LOST_SECONDS + 1) is JobStatus.LOST


@pytest.mark.parametrize("status", [JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED])
def test_what_has_ended_is_never_lost(status: JobStatus) -> None:
    assert job_status(record(status=status.value, ended=1001.0), 1e10) is status


def test_what_to_do_about_a_lost_job() -> None:
    for kind, words in (
        (JobKind.IMPORT, "POST it again with the option resume."),
        (JobKind.EXPORT, "POST it again."),
    ):
        shown = job_json(record(kind), 1e10)
        assert (shown["status"], shown["error"]["kind"]) == ("lost", "busy")
        assert shown["error"]["message"].endswith(words)
