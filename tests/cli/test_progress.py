"""How far a command is: a bar on a terminal, lines of JSON, or nothing; and Ctrl-C, wherever it hits."""

from __future__ import annotations

import argparse
import io
import json
import threading
from typing import Any

import pytest

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
from hsparse.errors import Conflict
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


def test_the_rate_is_that_of_this_command_alone(
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
