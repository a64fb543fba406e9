"""Random programs of h5py calls over an h5py file and, by h5pyd 1.0.0 unmodified, over a server: all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import h5pyd
import pytest

from tests.clients.known_differences import AVOIDED, KNOWN, Avoided
from tests.support.endurance import repeats
from tests.support.programs.program import Program
from tests.support.programs.program_run import Known, Side, Verdict, run_program
from tests.support.programs.random_program import draw_program
from tests.support.programs.verb import VERBS
from tests.support.server_process import server_process

MANY = 1000
"""Programs after which a known difference that none has met is taken for one that is no more."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("log") / "log"
    with server_process("--root", str(tmp_path_factory.mktemp("root")), "--no-fsync", log=log) as server:
        yield server.url
        assert server.stop() == 0
    assert "Traceback" not in log.read_text()


class Pair:
    """Runs programs over a new h5py file and a new domain, and keeps count."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self._options = {"endpoint": endpoint, "username": "admin", "password": "any", "retries": 1}
        self._folder = folder

    def run(self, program: Program, name: str, table: tuple[Known, ...] = KNOWN) -> Verdict:
        model = self._folder / f"{name}.h5"
        path = f"/home/admin/{name}.h5"

        def open_domain(mode: str) -> Any:
            return h5pyd.File(path, mode, **self._options)

        sides = Side(h5py, lambda mode: h5py.File(model, mode)), Side(h5pyd, open_domain)
        verdict = run_program(program, *sides, table)
        model.unlink()
        return verdict


@pytest.fixture
def pair(endpoint: str, tmp_path: Path) -> Pair:
    return Pair(endpoint, tmp_path)


@pytest.mark.endurance
def test_programs(pair: Pair, request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("programs") or repeats(25, short=12)
    met: Counter[str] = Counter()
    wrong, steps, whole = [], 0, 0
    for seed in range(count):
        program = draw_program(seed)
        verdict = pair.run(program, f"program-{seed}")
        met.update({known.name for known in verdict.met})
        steps, whole = steps + verdict.steps, whole + (not verdict.ended)
        if verdict.unnamed:
            wrong.append(f"{program}\nafter {verdict.steps} steps:\n{verdict.unnamed[0]}")
    print(f"{count} programs, {steps} steps compared, {whole} programs to their end; {len(wrong)} wrong")
    print("\n".join(f"{number:6} {name}" for name, number in met.most_common()))
    assert not wrong, "\n\n".join(wrong[:3])
    assert whole > count * 0.7
    assert count < MANY or set(met) == {known.name for known in KNOWN}


@pytest.mark.parametrize("avoided", AVOIDED, ids=lambda avoided: avoided.name)
def test_what_is_avoided_differs(pair: Pair, avoided: Avoided) -> None:
    """A row that h5pyd has learnt is to be taken out, and programs are to do it."""
    name = f"avoided-{AVOIDED.index(avoided)}"
    assert pair.run(avoided.program, name, ()).unnamed


def test_differences_are_found(pair: Pair) -> None:
    """Programs that differ in one step end at it, and rows of the table are told by their names."""
    program = draw_program(0)
    right = VERBS["look"]
    calls = iter(range(1000))
    try:
        VERBS["look"] = lambda *of: [next(calls)]
        verdict = pair.run(program, "differs")
        assert [(one.trail, one.expected, one.found) for one in verdict.unnamed] == [((0,), 0, 1)]
        known = Known("counts", "the test", "it counts", lambda it: it.step.verb == "look")
        assert known in pair.run(program, "differs-as-known", (*KNOWN, known)).met
    finally:
        VERBS["look"] = right
