"""How far a command is: lines of JSON, and nothing where nobody looks on."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from hsparse.cli.progress import Form, Lines, add_flag, progress, reporting, tell
from hsparse.clock import ManualClock
from hsparse.errors import Conflict


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_lines_come_once_a_second_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    shown = Lines(100, clock)
    for _ in range(10):
        shown.advance(1)
    assert lines(capsys) == [{"done": 1, "total": 100}]
    clock.time += 1
    shown.update(50, 200)
    shown.update(60, 200)
    assert lines(capsys) == [{"done": 50, "total": 200}]
    shown.finish()
    assert lines(capsys) == [{"done": 60, "total": 200}]


def test_the_context_tells_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(Form.JSON, "run.h5", 7) as shown:
        shown.advance(7)
    assert lines(capsys)[-1] == {"done": 7, "total": 7}


@pytest.mark.parametrize("form", [Form.BAR, Form.NONE])
def test_nobody_looks_on(capsys: pytest.CaptureFixture[str], form: Form) -> None:
    with progress(form, "[b]run.h5", 7) as shown:
        shown.advance(3)
        shown.update(7, 7)
    tell(form, "done")
    assert capsys.readouterr() == ("done\n", "")


def test_a_failure_is_a_line_and_raised(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flag(parser)

    def fail(args: argparse.Namespace) -> int:
        tell(args.progress, "begun")
        raise Conflict("It exists.")

    for flags in ([], ["--progress", "json"]):
        with pytest.raises(Conflict):
            reporting(fail)(parser.parse_args(flags))
    text = capsys.readouterr().out.splitlines()
    assert text[0] == "begun"
    assert [json.loads(line) for line in text[1:]] == [
        {"message": "begun"},
        {"error": {"kind": "conflict", "message": "It exists."}},
    ]
