""" """

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from demo.story import StoredSize, Story, WrongAnswer, ordered, report


@pytest.fixture
def story() -> Story:
    return Story(Console(file=io.StringIO(), width=40))


def told(story: Story) -> str:
    file = story.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


compound = np.array([(1, np.nan, b"a"), (2, 0.5, b"b")], [("a", "i4"), ("b", "f8"), ("c", "S2")])


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (3, 3),
        ([1, 2], [1, 2]),
        ([], []),
        (np.array([1, np.nan]), np.array([1, np.nan])),
        (compound, compound.copy()),
    ],
)
def test_equal_answers_are_counted_and_told(story: Story, got: Any, wanted: Any) -> None:
    story.same("a [bold] claim that is longer than the console is wide", got, wanted)
    assert story.checks == 1
    assert "  right  a [bold] claim that is longer than the console is wide\n" in told(story)


other = compound.copy()
other["c"][1] = b"c"


@pytest.mark.parametrize(
    ("got", "wanted", "difference"),
    [
        (3, 4, "the answer is 3, not 4"),
        ([1, 2], [1, 3], r"the answer at \[1\] is 2, not 3"),
        ([1, 2], [1, 2, 3], r"shape \[2\], not \[3\]"),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan]), r"at \[1\] is 2.0, not nan"),
        (other, compound, r"at \[0\]|at \[1\]"),
        (np.array([300]), np.array([44], "u1"), "is 300, not 44"),
    ],
)
def test_other_answers_are_wrong(story: Story, got: Any, wanted: Any, difference: str) -> None:
    with pytest.raises(WrongAnswer, match=f"the claim: .*{difference}"):
        story.same("the claim", got, wanted)
    assert story.checks == 0
    assert told(story) == ""


def test_what_is_wrong_is_told(story: Story) -> None:
    story.wrong(WrongAnswer("all [0] of it"))
    assert told(story) == "wrong  all [0] of it\n"


def test_elements_are_ordered_row_major() -> None:
    coords = np.array([[1, 0], [0, 5], [0, 2]], np.uint64)
    places, values = ordered(coords, np.array([1, 2, 3]))
    assert places.tolist() == [[0, 2], [0, 5], [1, 0]]
    assert values.tolist() == [3, 2, 1]


def test_elements_are_the_same_in_any_order(story: Story) -> None:
    wanted = np.array([[0, 1], [2, 0]]), np.array([7, 8])
    story.same_elements("x", (np.array([[2, 0], [0, 1]], np.uint64), np.array([8, 7])), wanted)
    story.same_places("x", np.array([[2, 0], [0, 1]], np.uint64), wanted[0])
    with pytest.raises(WrongAnswer, match="x: how many: the answer is 1, not 2"):
        story.same_elements("x", (wanted[0][:1], wanted[1][:1]), wanted)
    with pytest.raises(WrongAnswer, match="x: places"):
        story.same_elements("x", wanted, (wanted[0] + 1, wanted[1]))
    with pytest.raises(WrongAnswer, match="x: values"):
        story.same_elements("x", (wanted[0], wanted[1] + 1), wanted)
    with pytest.raises(WrongAnswer, match="x: how many: the answer is 3, not 2"):
        story.same_places("x", wanted[0][[0, 1, 1]], wanted[0])


def shown(lines: list[StoredSize]) -> list[list[str]]:
    file = io.StringIO()
    Console(file=file, width=80).print(report(lines))
    return [words for line in file.getvalue().splitlines() if (words := line.split())]


def test_a_row_a_dataset_and_their_sum() -> None:
    lines = [
        StoredSize("/a", 4_000_000, 1_000_000, 20_000_000, 2.0, 0.5),
        StoredSize("/b", 1_000_000, 9_000_000, 10_000_000, 0.25),
    ]
    rows = {words[0]: words[1:] for words in shown(lines)}
    assert rows["/a"] == ["4,000,000", "20.00", "1.00", "0.25", "2.00", "8.00"]
    assert rows["/b"] == ["1,000,000", "10.00", "9.00", "9.00", "4.00"]
    assert rows["all"] == ["5,000,000", "30.00", "10.00", "2.00"]


def test_nothing_at_all_is_no_failure() -> None:
    rows = {words[0]: words[1:] for words in shown([StoredSize("/empty", 0, 0, 0, 0.0, 0.0)])}
    assert rows["/empty"] == ["0", "0.00", "0.00", "0.00", "0.00", "0.00"]


def test_it_fits_a_terminal_of_80_columns() -> None:
    lines = [StoredSize("rest of the file", 99_999_999, 10**8, 10**9, 1.0, 1.0)]
    assert not any("…" in word for words in shown(lines) for word in words)
