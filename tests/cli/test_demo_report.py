from __future__ import annotations

import io

from rich.console import Console

from hsparse.cli.demo_report import Stored, report


def shown(lines: list[Stored]) -> list[list[str]]:
    file = io.StringIO()
    Console(file=file, width=80).print(report(lines))
    return [words for line in file.getvalue().splitlines() if (words := line.split())]


def test_a_row_a_dataset_and_their_sum() -> None:
    lines = [
        Stored("/a", 4_000_000, 1_000_000, 20_000_000, 2.0, 0.5),
        Stored("/b", 1_000_000, 9_000_000, 10_000_000, 0.25),
    ]
    rows = {words[0]: words[1:] for words in shown(lines)}
    assert rows["/a"] == ["4,000,000", "20.00", "1.00", "0.25", "2.00", "8.00"]
    assert rows["/b"] == ["1,000,000", "10.00", "9.00", "9.00", "4.00"]
    assert rows["all"] == ["5,000,000", "30.00", "10.00", "2.00"]


def test_nothing_at_all_is_no_failure() -> None:
    rows = {words[0]: words[1:] for words in shown([Stored("/empty", 0, 0, 0, 0.0, 0.0)])}
    assert rows["/empty"] == ["0", "0.00", "0.00", "0.00", "0.00", "0.00"]


def test_it_fits_a_terminal_of_80_columns() -> None:
    lines = [Stored("rest of the file", 99_999_999, 10**8, 10**9, 1.0, 1.0)]
    assert not any("…" in word for words in shown(lines) for word in words)
