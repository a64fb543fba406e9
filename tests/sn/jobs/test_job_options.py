"""Options of jobs are flags of the commands."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.cli.main import make_parser
from hsparse.errors import BadRequest
from hsparse.sn.jobs.job import Job
from hsparse.sn.jobs.job_options import OPTIONS, Kind, check_options, flags

GIVEN: list[tuple[Kind, dict[str, Any]]] = [
    (Kind.IMPORT, {"resume": True, "as_is": True, "path": "--force", "requests": 3}),
    (Kind.EXPORT, {"layout": "structured", "revision": "rfc-2025-10", "force": True, "resume": True}),
    (Kind.EXPORT, {"matrices": "anndata-csr", "filter": "shuffle+gzip=4"}),
]


@pytest.mark.parametrize("kind", Kind)
def test_all_options_are_given(kind: Kind) -> None:
    assert {name for one, options in GIVEN if one is kind for name in options} == set(OPTIONS[kind])


@pytest.mark.parametrize(("kind", "options"), GIVEN)
def test_the_command_takes_every_option(kind: Kind, options: dict[str, Any]) -> None:
    job = Job("j-1", kind, "ada", "/home/ada/a.h5", "file:///x/a.h5", check_options(kind, options))
    parsed = make_parser().parse_args(job.arguments("/x/a.h5", "http://127.0.0.1:1"))
    # --filter may be repeated, the option has all of them
    found = {name: getattr(parsed, name) for name in options} | (
        {"filter": "+".join(parsed.filter)} if "filter" in options else {}
    )
    assert found == options
    assert (str(parsed.file), parsed.domain) == ("/x/a.h5", "/home/ada/a.h5")
    assert (parsed.piped, parsed.progress, parsed.endpoint) == (True, "json", "http://127.0.0.1:1")


def test_what_is_not_wanted_is_no_flag() -> None:
    assert flags(Kind.IMPORT, {"resume": False, "requests": 1}) == ["--requests=1"]
    assert check_options(Kind.EXPORT, None) == {}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Kind.IMPORT, "resume"),
        (Kind.IMPORT, {"piped": True}),
        (Kind.IMPORT, {"endpoint": "http://x"}),
        (Kind.IMPORT, {"requests": True}),
        (Kind.IMPORT, {"requests": 65}),
        (Kind.IMPORT, {"path": ""}),
        (Kind.IMPORT, {"path": "x" * 2000}),
        (Kind.IMPORT, {"path": "a/b"}),
        (Kind.EXPORT, {"layout": "other"}),
        (Kind.EXPORT, {"layout": "structured", "matrices": "anndata-csr"}),
        (Kind.EXPORT, {"layout": "stock", "revision": "rfc-2025-10"}),
        (Kind.EXPORT, {"revision": "rfc-2025-10"}),
        (Kind.EXPORT, {"layout": ["stock"]}),
        (Kind.EXPORT, {"force": "yes"}),
    ],
)
def test_what_does_not_fit(kind: Kind, options: Any) -> None:
    with pytest.raises(BadRequest):
        check_options(kind, options)
