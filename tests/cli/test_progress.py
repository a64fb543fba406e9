"""How far a command is: lines of JSON, and nothing where nobody looks on.

Ctrl-C, wherever it hits.
"""

from __future__ import annotations

import argparse
import json
import threading
from typing import Any

import pytest

from hsparse.cli.progress import (
    JsonLines,
    ProgressForm,
    add_progress_flag,
    interruptible,
    print_message,
    reports_failure,
    show_progress,
)
from hsparse.clock import ManualClock
from hsparse.errors import Conflict


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_lines_come_once_a_second_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    shown = JsonLines(100, clock)
    for _ in range(10):
        shown.advance(1)
    assert lines(capsys) == [{"done": 1, "total": 100}]
    clock.time += 1
    shown.update(50, 200)
    shown.update(60, 200)
    assert lines(capsys) == [{"done": 50, "total": 200}]
    shown.finish()
    assert lines(capsys) == [{"done": 200, "total": 200}]


def test_the_context_tells_that_all_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(ProgressForm.JSON, "run.h5", 7) as shown:
        shown.advance(5)
    assert lines(capsys)[-1] == {"done": 7, "total": 7}
    with show_progress(ProgressForm.JSON, "run.h5") as shown:
        shown.advance(5)
    assert lines(capsys)[-1] == {"done": 5, "total": None}


@pytest.mark.parametrize("form", [ProgressForm.BAR, ProgressForm.NONE])
def test_nobody_looks_on(capsys: pytest.CaptureFixture[str], form: ProgressForm) -> None:
    with show_progress(form, "[b]run.h5", 7) as shown:
        shown.advance(3)
        shown.update(7, 7)
    print_message(form, "done")
    assert capsys.readouterr() == ("done\n", "")


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
