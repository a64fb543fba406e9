"""How the benchmarks are started and measured: the command, children, servers, load and memory."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks import __main__ as main
from benchmarks.bench import Bench
from benchmarks.child import Child, ChildFailed, free_port, run
from benchmarks.failure import Failed
from benchmarks.load import Load, drive
from benchmarks.memory import forget_marks, high_marks
from benchmarks.peers import hsparse
from benchmarks.peers.server import Server
from benchmarks.report import MeasuredMetric, Report


def test_all_workloads_and_peers_by_default() -> None:
    options = main.arguments([])
    assert options.workloads == list(main.WORKLOADS)
    assert options.peers == {"hsparse", "hsds", "tiledb", "cells", "tiled", "bare"}
    assert options.repeats == 3


def test_the_libraries_of_cells_are_no_peers_of_other_workloads() -> None:
    assert "cells" in main.arguments(["dense", "cells"]).peers
    assert "cells" not in main.arguments(["dense"]).peers
    assert "cells" not in main.arguments(["cells", "--peers", "tiledb"]).peers


def test_quick_takes_one_turn_and_peers_can_be_left_out() -> None:
    options = main.arguments(["dense", "--quick", "--peers", "", "--no-hsparse"])
    assert options.workloads == ["dense"]
    assert options.repeats == 1
    assert options.peers == {"bare"}


def test_an_older_revision_is_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hsparse, "commit", {"v1": "0123"}.get)
    options = main.arguments(["--peers", "", "--against", "v1"])
    assert options.peers == {"hsparse", "older", "bare"}
    assert options.against == "0123"


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (["densest"], "there is no workload 'densest'; there are lcls-points"),
        (["--peers", "zarr"], "there is no peer 'zarr'; there are hsds, tiledb, cells, tiled"),
        (["--repeats", "0"], "at least 1"),
        (["--against", "no-such-tag"], "has no revision 'no-such-tag'"),
    ],
)
def test_what_is_unknown_is_refused_with_what_is_known(
    argv: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main.arguments(argv)
    assert remedy in capsys.readouterr().err


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_workload_that_fails_is_reported_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(bench: Bench) -> None:
        (bench.work / "data").write_bytes(b"x")
        raise ExceptionGroup("two clients", [Failed("no answer"), Failed("no answer")])

    async def sound(bench: Bench) -> None:
        bench.report.add(MeasuredMetric("dense", "write", "MiB/s", higher=True), "hsparse", 1.0)

    monkeypatch.setattr(main, "WORKLOADS", {"broken": broken, "sound": sound})
    monkeypatch.setattr(main, "FOLDER", tmp_path)
    report = Report()
    options = main.arguments(["--out", str(tmp_path / "out" / "x.json")])
    await main.run(options, report, lambda text: None)
    assert report.failures == ["`broken` was not finished: no answer"]
    assert names(tmp_path) == []  # every run's data is gone
    text = main.write(report, {"kernel": "Linux"}, options.out)
    stored = json.loads(options.out.read_text())
    assert stored["facts"] == {"kernel": "Linux"}
    assert stored["figures"][0]["samples"] == {"hsparse": [1.0]}
    assert stored["failures"] == report.failures
    assert (tmp_path / "last.md").read_text() == text


@pytest.mark.parametrize("repeats", [1, 3])
async def test_sides_take_turns_and_another_begins_each_time(tmp_path: Path, repeats: int) -> None:
    told: list[str] = []
    taken: list[str] = []

    async def turn(name: str) -> None:
        taken.append(name)

    bench = Bench(tmp_path, tmp_path, frozenset(), repeats, True, Report(), told.append)
    await bench.in_turn("x", {name: lambda name=name: turn(name) for name in "ab"})  # type: ignore[misc]
    assert taken == list("abbaab")[: 2 * repeats]
    assert told[0] == f"x: a, repeat 1 of {repeats}"


async def test_the_bare_handler_answers_as_many_bytes_as_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path, tmp_path, frozenset({"bare"}), 1, True, Report(), lambda text: None)
    async with bench.sides("x", "bare", "hsds", "tiledb", "hsparse") as sides:
        assert sides.bare is not None
        assert sides.servers() == []
        child = sides.bare.children[0]
        (tmp_path / "x" / "some.h5").write_bytes(bytes(range(100)))
        async with sides.bare.rest() as rest:
            assert await rest.send("GET", "/static/some.h5") == bytes(range(100))
            for size in (0, 2, 2**20, 3 * 2**20 + 1):
                assert len(await rest.send("PUT", "/x", b"body", params={"bytes": str(size)})) == size
    assert child.process.returncode is not None


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
child.wait()
"""


def state(pid: int) -> str:
    """Return a process's state letter."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


async def test_stopping_a_child_ends_its_own_children(tmp_path: Path) -> None:
    child = await Child.start([sys.executable, "-c", PARENT], tmp_path / "parent.log")
    while not (text := child.tail()).endswith("\n"):
        child.check()
        await asyncio.sleep(0.01)
    await child.stop()
    assert child.process.returncode is not None
    assert state(int(text)) == "gone"


async def test_a_child_that_ended_is_found_with_its_last_words(tmp_path: Path) -> None:
    child = await Child.start([sys.executable, "-c", "print('farewell'); exit(3)"], tmp_path / "brief.log")
    await child.process.wait()
    with pytest.raises(ChildFailed, match=r"brief ended with 3: farewell"):
        child.check()
    await child.stop()


async def test_a_child_gets_the_environment_it_is_given(tmp_path: Path) -> None:
    code = "import os; print(os.environ['MARK'], os.environ['PATH'])"
    child = await Child.start([sys.executable, "-c", code], tmp_path / "env.log", {"MARK": "x"})
    await child.process.wait()
    assert child.tail() == f"x {os.environ['PATH']}\n"


async def test_a_command_is_run_to_its_end_and_must_succeed(tmp_path: Path) -> None:
    await run([sys.executable, "-c", "print('done')"], tmp_path / "sound.log")
    assert (tmp_path / "sound.log").read_text() == "done\n"
    with pytest.raises(ChildFailed, match=r"broken ended with 1: .*no such thing"):
        await run([sys.executable, "-c", "exit('no such thing')"], tmp_path / "broken.log")


def test_a_free_port_can_be_bound() -> None:
    assert 1024 <= free_port() < 65536


DATASET = "d-00112233-44556677-8899-aabbcc-ddeeff"
KEY = "db/00112233-44556677/d/8899-aabbcc-ddeeff"


@pytest.mark.parametrize("bucket", ["", "bucket"])
def test_chunks_of_the_dataset_are_counted_and_nothing_else(tmp_path: Path, bucket: str) -> None:
    folder = tmp_path / bucket / KEY
    folder.mkdir(parents=True)
    (folder / "0_0").write_bytes(bytes(10))
    (folder / "12_3").write_bytes(bytes(5))
    (folder / ".dataset.json").write_bytes(bytes(100))
    (folder / "0_0.tmp").write_bytes(bytes(100))
    other = tmp_path / bucket / KEY.replace("ddeeff", "ddeef0")
    other.mkdir()
    (other / "0_0").write_bytes(bytes(100))
    server = Server("hsparse", "http://127.0.0.1:1", durable=True, children=[], store=tmp_path)
    assert server.stored(DATASET) == 15


def test_a_server_without_a_store_has_no_bytes() -> None:
    with pytest.raises(ValueError, match="stores nothing"):
        Server("bare", "http://127.0.0.1:1", durable=False, children=[]).stored(DATASET)


async def test_every_job_runs_once_and_no_more_than_the_clients_at_a_time() -> None:
    seen: list[int] = []
    running = most = 0

    async def job(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        seen.append(number)

    load = await drive(job, 20, clients=3)
    assert sorted(seen) == list(range(20))
    assert most == 3
    assert len(load.latencies) == 20
    assert load.seconds >= max(load.latencies)


async def test_a_job_that_fails_ends_the_load() -> None:
    async def job(number: int) -> None:
        if number == 2:
            raise KeyError(number)

    with pytest.raises(ExceptionGroup) as caught:
        await drive(job, 5)
    assert caught.group_contains(KeyError)


def test_rates_and_percentiles() -> None:
    load = Load(2.0, tuple(i / 1000 for i in range(101)))
    assert load.rate == 50.5
    assert load.percentile(50) == pytest.approx(50)
    assert load.percentile(99) == pytest.approx(99)


HOLDER = """
import subprocess, sys
block = bytearray(64 * 2**20)
del block
child = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); import signal; signal.pause()"])
child.wait()
"""


@pytest.fixture
async def holder(tmp_path: Path) -> AsyncIterator[Child]:
    child = await Child.start([sys.executable, "-c", HOLDER], tmp_path / "holder.log")
    while not child.tail():
        child.check()
        await asyncio.sleep(0.01)
    yield child
    await child.stop()


async def test_a_peak_that_is_over_still_counts_until_forgotten_and_so_do_children(holder: Child) -> None:
    marks = high_marks(holder.pid)
    assert len(marks) == 2
    assert marks[holder.pid] > 64 * 2**20
    assert os.getpid() not in marks
    forget_marks(holder.pid)
    assert high_marks(holder.pid)[holder.pid] < 64 * 2**20
