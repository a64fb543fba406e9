"""Work of commands: how far it is, its threads, its embedded server, and Ctrl-C wherever it hits."""

from __future__ import annotations

import argparse
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.progress import (
    JsonLines,
    ProgressBar,
    ProgressForm,
    add_progress_flag,
    interruptible,
    print_message,
    reports_failure,
    show_progress,
)
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.config import load_settings
from hsparse.errors import Conflict, Misconfigured
from tests.testing.manual_clock import ManualClock


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_lines_come_once_a_second_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    shown = JsonLines(100, clock)
    for _ in range(10):
        shown.advance(1)
    assert lines(capsys) == [{"done": 1, "total": 100, "rate": 0, "left": None}]
    clock.time += 1
    shown.update(50, 200)
    shown.update(60, 200)
    assert lines(capsys) == [{"done": 50, "total": 200, "rate": 50, "left": 3.0}]
    clock.time += 1
    shown.finish()
    assert lines(capsys) == [{"done": 200, "total": 200, "rate": 100, "left": 0.0}]


def test_the_rate_is_the_command_s(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    clock, file = ManualClock(), io.StringIO()
    both = JsonLines(100_000_000, clock), ProgressBar("x", 100_000_000, file, clock)
    for shown in both:
        shown.advance(40_000_000, 10_000_000, before=True)
    clock.time += 4
    for shown in both:
        shown.advance(20_000_000, 6_000_000)
    found = {"done": 60_000_000, "total": 100_000_000, "rate": 5_000_000, "left": 8.0, "elements": 6_000_000}
    assert lines(capsys)[-1] == found
    assert file.getvalue().endswith("] 60.0/100.0 MB, 5.0 MB/s, 1.5 M elements/s, 0:00:08 left")


def test_the_context_tells_that_all_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(ProgressForm.JSON, "run.h5", 7) as shown:
        shown.advance(5)
    last = lines(capsys)[-1]
    assert (last["done"], last["total"], last["left"]) == (7, 7, 0.0)
    with show_progress(ProgressForm.JSON, "run.h5") as shown:
        shown.advance(5)
    last = lines(capsys)[-1]
    assert (last["done"], last["total"], last["left"]) == (5, None, None)


@pytest.mark.parametrize("form", [ProgressForm.BAR, ProgressForm.NONE])
def test_nobody_looks_on(capsys: pytest.CaptureFixture[str], form: ProgressForm) -> None:
    with show_progress(form, "[b]run.h5", 7) as shown:
        shown.advance(3)
        shown.update(7, 7)
    print_message(form, "done")
    assert capsys.readouterr() == ("done\n", "")


def test_the_bar_is_drawn_ten_times_a_second_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    clock, file = ManualClock(), io.StringIO()
    bar = ProgressBar("run\x1b.h5", 40_000_000, file, clock)
    clock.time += 2
    bar.advance(10_000_000)
    bar.advance(10_000_000)
    assert file.getvalue() == "\r\x1b[Krun?.h5 [" + "=" * 8 + " " * 22 + "] 10.0/40.0 MB, 5.0 "
    clock.time += 2
    bar.update(40_000_000, 40_000_000)
    bar.close()
    assert file.getvalue().split("\r\x1b[K")[2:] == ["run?.h5 [" + "=" * 30 + "] 40.0/40.0 MB, 10.0", ""]


def test_a_bar_of_unknown_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    clock, file = ManualClock(), io.StringIO()
    bar = ProgressBar("run.h5", None, file, clock)
    clock.time += 1
    bar.advance(1_500_000)
    assert file.getvalue() == "\r\x1b[Krun.h5 1.5 MB, 1.5 MB/s"


def test_a_failure_is_a_line_and_raised(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_progress_flag(parser)

    def fail(args: argparse.Namespace) -> int:
        print_message(args.progress, "begun")
        raise Conflict("It exists.")

    for flags in ([], ["--progress", "json"]):
        with pytest.raises(Conflict):
            reports_failure(fail)(parser.parse_args(flags))
    text = capsys.readouterr().out.splitlines()
    assert text[0] == "begun"
    assert [json.loads(line) for line in text[1:]] == [
        {"message": "begun"},
        {"error": {"kind": "conflict", "message": "It exists."}},
    ]


def test_an_interrupt_in_a_locks_own_code() -> None:
    condition = threading.Condition(threading.Lock())

    def interrupted() -> None:
        with interruptible(), condition:
            condition.release()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_other_errors_stay() -> None:
    with pytest.raises(RuntimeError, match="unlocked"), interruptible():
        threading.Lock().release()
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise KeyboardInterrupt


def test_everything_is_done_within_the_memory() -> None:
    done: list[int] = []
    lock = threading.Lock()
    held = most = 0

    def work(number: int, nbytes: int) -> None:
        nonlocal held, most
        with lock:
            held += nbytes
            most = max(most, held)
        with lock:
            held -= nbytes
            done.append(number)

    with BoundedPool(4, memory=100) as uploads:
        for number in range(200):
            nbytes = 10 + number % 50
            uploads.submit(nbytes, lambda number=number, nbytes=nbytes: work(number, nbytes))  # type: ignore[misc]
        uploads.finish()
    assert sorted(done) == list(range(200))
    assert most <= 100


def test_work_that_holds_more_than_there_is_runs_alone() -> None:
    running: set[int] = set()
    alone: list[bool] = []

    def work(number: int) -> None:
        running.add(number)
        alone.append(running == {number})
        running.remove(number)

    with BoundedPool(4, memory=100) as uploads:
        for number in range(20):
            uploads.submit(1000, lambda number=number: work(number))  # type: ignore[misc]
        uploads.finish()
    assert alone == [True] * 20


def test_the_first_failure_stops_what_has_not_begun() -> None:
    begun: list[int] = []
    last = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 3:
            last.set()
            raise ValueError("the third")

    def run() -> None:
        with BoundedPool(1) as uploads:
            for number in range(1000):
                uploads.submit(1, lambda number=number: work(number))  # type: ignore[misc]
            uploads.finish()

    with pytest.raises(ValueError, match="the third"):
        run()
    assert begun == [0, 1, 2, 3]


def test_the_first_failure_ends_what_waits() -> None:
    begun, stopped = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        begun.set()
        ended.append(stopped.wait())

    def run() -> None:
        with BoundedPool(1, stop=stopped.set) as uploads:
            uploads.submit(1, work)
            begun.wait()
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        run()
    assert ended == [True]


def test_results_come_in_order_and_only_some_ahead() -> None:
    taken: list[int] = []

    def items() -> object:
        for number in range(100):
            taken.append(number)
            yield number

    with BoundedPool(3) as uploads:
        for place, result in enumerate(uploads.ahead(items(), lambda number: number * 2)):  # type: ignore[arg-type]
            assert result == place * 2
            assert len(taken) <= place + 4


def test_it_serves_while_the_context_lasts(tmp_path: Path) -> None:
    with embedded_server(load_settings(root=tmp_path, port=0)) as url, Connection(url) as connection:
        assert connection.json("GET", "/about")["state"] == "READY"
    with Connection(url) as connection, pytest.raises(Unreachable):
        connection.json("GET", "/about")


def test_what_it_stored_is_there_for_the_next(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path, port=0, fsync=False)
    with embedded_server(settings) as url, Connection(url, "/a.h5") as connection:
        root = connection.json("PUT", "/", {})["root"]
    with embedded_server(settings) as url, Connection(url, "/a.h5") as connection:
        assert connection.json("GET", "/")["root"] == root


def test_it_stops_when_the_body_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), embedded_server(load_settings(root=tmp_path, port=0)) as url:
        raise ZeroDivisionError
    with Connection(url) as connection, pytest.raises(Unreachable):
        connection.json("GET", "/about")


def test_what_it_cannot_start_for_is_raised(tmp_path: Path) -> None:
    with (
        embedded_server(load_settings(root=tmp_path / "a", port=0)) as url,
        pytest.raises(Misconfigured, match="Cannot listen"),
        embedded_server(load_settings(root=tmp_path / "b", port=int(url.rpartition(":")[2]))),
    ):
        pytest.fail("two servers listen on one port")


def test_a_directory_has_one_server(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path, port=0)
    with (
        embedded_server(settings),
        pytest.raises(Misconfigured, match="is served already"),
        embedded_server(settings),
    ):
        pytest.fail("two servers serve one directory")
