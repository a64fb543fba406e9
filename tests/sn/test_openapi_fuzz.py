"""Requests made up from the OpenAPI document, by schemathesis: whatever comes, no 500.

`--fuzz N` makes three times N for each operation: aimed at what is there, of all that the document allows, and of
what it does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode

from hsparse.sn.about import specification
from tests.sn.fuzz_target import FuzzTarget
from tests.support.endurance import repeats
from tests.support.server_process import server_process

OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in specification()["paths"].items()
    for method, operation in methods.items()
    if "parameters" in operation  # else there is nothing to make up
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzTarget]:
    root: Path = tmp_path_factory.mktemp("root")
    flags = ("--no-fsync", "--max-request-size", "2000000")
    with server_process("--root", str(root), *flags, log=root / "log") as server:
        yield FuzzTarget(server.url)
        assert server.stop() == 0


@pytest.mark.endurance
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.timeout(3600)
def test_no_request_is_a_defect(name: str, target: FuzzTarget, request: pytest.FixtureRequest) -> None:
    target.fill()
    method, path = name.split()
    few = settings(
        max_examples=request.config.getoption("--fuzz") or repeats(3, short=1),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def send(case: Case) -> None:
        target.hit(case)
        answer = case.call(base_url=target.url, session=session, timeout=60)
        sent = f"{answer.request.method} {answer.request.url} {answer.request.body!r:.2000}"
        assert answer.status_code < 500, f"{sent} is answered {answer.status_code}: {answer.content!r:.400}"
        if answer.status_code >= 400 and method != "HEAD":
            body = json.loads(answer.content)
            assert set(body["error"]) == {"kind", "message"}, sent
            assert body["error"]["message"], sent

    with requests.Session() as session:
        for spec, mode in (
            (target.aimed(), GenerationMode.POSITIVE),
            (specification(), GenerationMode.POSITIVE),
            (specification(), GenerationMode.NEGATIVE),
        ):
            operation = schemathesis.openapi.from_dict(spec)[path][method]
            few(given(case=operation.as_strategy(generation_mode=mode))(send))()
