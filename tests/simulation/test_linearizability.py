"""The checker knows right histories from wrong ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection

import pytest

from tests.simulation.history import Action, AppendOperation, ExtentRead, Growth, Operation
from tests.simulation.linearizability import (
    ANY_CHANGE,
    DELETIONS,
    refuted_by,
    wrong_appends,
    wrong_extensions,
)

W, R, C, D, G = Action.WRITE, Action.READ, Action.CREATE, Action.DELETE, Action.GROW


def history(*lines: tuple[Action, object, int, int | None] | tuple[Action, object, int, int | None, bool]):
    """Return operations of (action, value, invoked, returned, refused)."""
    return [
        Operation("x", line[0], line[1], line[2], returned=line[3], refused=len(line) > 4 and line[4])
        for line in lines
    ]


RIGHT = {
    "nothing": (),
    "a write is read": ((W, 1, 1, 2), (R, 1, 3, 4)),
    "nothing is read before a write": ((R, None, 1, 2), (W, 1, 3, 4)),
    "writes at once, either order": ((W, 1, 1, 4), (W, 2, 2, 3), (R, 1, 5, 6)),
    "a read during a write sees the old value": ((W, 1, 1, 2), (W, 2, 3, 6), (R, 1, 4, 5), (R, 2, 7, 8)),
    "a write without an answer takes effect later": ((W, 1, 1, None), (R, None, 2, 3), (R, 1, 4, 5)),
    "a write without an answer takes effect after another": ((W, 1, 1, None), (W, 2, 2, 3), (R, 1, 4, 5)),
    "a write without an answer never takes effect": ((W, 1, 1, None), (W, 2, 2, 3), (R, 2, 4, 5)),
    "a deletion, then nothing": ((C, 1, 1, 2), (D, None, 3, 4), (R, None, 5, 6), (C, 2, 7, 8)),
    "refused as it should be": ((D, None, 1, 2, True), (C, 1, 3, 4), (C, 2, 5, 6, True), (R, 1, 7, 8)),
    "refused for one without an answer": ((C, 1, 1, None), (C, 2, 2, 3, True), (R, 1, 4, 5)),
    "a refused write that took effect": ((W, 1, 1, 2, True), (R, 1, 3, 4)),
    "a refused write that did not": ((W, 1, 1, 2, True), (R, None, 3, 4)),
    "both ends grow": ((W, (0, 0), 1, 2), (G, Growth(2, True, -2), 3, 5), (G, Growth(1, False, 0), 4, 6)),
    "growth without an answer": ((W, (0, 3), 1, 2), (G, Growth(1, True), 3, None), (R, (-1, 3), 4, 5)),
    "growth after a write without an answer": ((W, (0, 3), 1, None), (G, Growth(1, False, 3), 2, 3)),
    "an erasure without an answer": ((W, 1, 1, 2), (W, None, 3, None), (R, 1, 4, 5), (R, None, 6, 7)),
}
WRONG = {
    "a stale read": ((W, 1, 1, 2), (W, 2, 3, 4), (R, 1, 5, 6)),
    "a lost write": ((W, 1, 1, 2), (R, None, 3, 4)),
    "never written": ((R, 7, 1, 2),),
    "a refused write that took effect later": ((W, 1, 1, 2, True), (R, None, 3, 4), (R, 1, 5, 6)),
    "the new value, then the old one": ((W, 1, 1, 2), (W, 2, 3, 8), (R, 2, 4, 5), (R, 1, 6, 7)),
    "v2, then v1, of writes without an answer": (
        (W, 1, 1, None),
        (W, 2, 2, None),
        (R, 1, 3, 4),
        (R, 2, 5, 6),
        (R, 1, 7, 8),
    ),
    "read before it is written": ((R, 1, 1, 2), (W, 1, 3, 4)),
    "grown twice": ((W, (0, 0), 1, 2), (G, Growth(1, False, 0), 3, 4), (R, (0, 2), 5, 6)),
    "grown at one place": ((W, (0, 0), 1, 2), (G, Growth(1, False, 0), 3, 5), (G, Growth(1, False, 0), 4, 6)),
    "grown over a shrink": ((W, (0, 4), 1, 2), (W, (0, 2), 3, 4), (G, Growth(1, False, 4), 5, 6)),
    "created twice": ((C, 1, 1, 2), (C, 2, 3, 4)),
    "deleted twice": ((C, 1, 1, 2), (D, None, 3, 4), (D, None, 5, 6)),
    "a deletion that did nothing": ((C, 1, 1, 2), (D, None, 3, 4), (R, 1, 5, 6)),
    "refused for nothing": ((C, 1, 1, 2, True),),
    "missing though it is there": ((C, 1, 1, 2), (D, None, 3, 4, True)),
}
WRONG_EVEN_WITH_REPEATS = set(WRONG) - {"v2, then v1, of writes without an answer", "deleted twice"}


@pytest.mark.parametrize("repeats", [(), DELETIONS, ANY_CHANGE])
@pytest.mark.parametrize("name", RIGHT)
def test_right_histories(name: str, repeats: Collection[Action]) -> None:
    assert refuted_by(history(*RIGHT[name]), repeats=repeats) is None


@pytest.mark.parametrize("name", WRONG)
def test_wrong_histories(name: str) -> None:
    assert refuted_by(history(*WRONG[name])) is not None


@pytest.mark.parametrize("name", WRONG)
def test_a_change_may_take_effect_again_only_while_it_is_not_answered(name: str) -> None:
    found = refuted_by(history(*WRONG[name]), repeats=ANY_CHANGE)
    assert (found is not None) == (name in WRONG_EVEN_WITH_REPEATS)


def test_a_repeated_write_may_come_back_until_it_is_answered() -> None:
    begun = history((W, 1, 1, 8), (W, 2, 2, 3), (R, 1, 4, 5), (R, 2, 6, 7))
    assert refuted_by(begun) is not None
    back = history((W, 1, 1, 10), (R, 1, 2, 3), (W, 2, 4, 5), (R, 2, 6, 7), (R, 1, 8, 9))
    assert refuted_by(back) is not None
    assert refuted_by(back, repeats=ANY_CHANGE) is None
    answered = history((W, 1, 1, 4), (R, 1, 2, 3), (W, 2, 5, 6), (R, 2, 7, 8), (R, 1, 9, 10))
    assert refuted_by(answered, repeats=ANY_CHANGE) is not None


def by_brute_force(operations: list[Operation]) -> bool:
    """Say whether some order of all answered operations, and of some others, explains a history of reads and writes."""
    answered = [one for one in operations if one.returned is not None]
    others = [one for one in operations if one.returned is None and one.action is W]
    for count in range(len(others) + 1):
        for some in itertools.combinations(others, count):
            if any(map(_explains, itertools.permutations([*answered, *some]))):
                return True
    return False


def _explains(order: tuple[Operation, ...]) -> bool:
    value = None
    for place, operation in enumerate(order):
        if any(later.returned and later.returned < operation.invoked for later in order[place + 1 :]):
            return False
        if operation.action is W:
            value = operation.value
        elif operation.value != value:
            return False
    return True


def test_it_agrees_with_all_orders_tried() -> None:
    generator = random.Random(1)
    verdicts = set()
    for _ in range(400):
        ends = generator.sample(range(1, 13), 12)
        operations = []
        for number in range(6):
            low, high = sorted(ends[2 * number : 2 * number + 2])
            action = generator.choice((W, R))
            value = number if action is W else generator.choice((None, 0, 1, 2, 3, 4, 5))
            returned = None if action is W and generator.random() < 0.3 else high
            operations.append(Operation("x", action, value, low, returned=returned))
        verdict = by_brute_force(operations)
        assert (refuted_by(operations) is None) == verdict, [str(one) for one in operations]
        verdicts.add(verdict)
    assert verdicts == {True, False}


APPENDS = [AppendOperation(1, 2, 1, 4, 0), AppendOperation(2, 1, 2, None), AppendOperation(3, 1, 5, 6, 3)]


@pytest.mark.parametrize(
    ("values", "extents", "wrong"),
    [
        ([1, 1, 2, 3], [], 0),
        ([1, 1, None, 3], [], 1),
        ([1, 1, 2, 3, 3], [], 1),
        ([1, 1, 2, 3, 2], [], 1),
        ([1, 2, 2, 3], [], 2),
        ([1, 1, 2], [], 1),
        ([1, 1, 2, 3], [ExtentRead(2, 5, 7), ExtentRead(4, 8, 9)], 0),
        ([1, 1, 2, 3], [ExtentRead(2, 7, 8)], 1),
        ([1, 1, 2, 3], [ExtentRead(4, 3, 4), ExtentRead(3, 5, 6)], 1),
    ],
    ids=["right", "a gap", "twice", "twice, unanswered", "torn", "lost", "grows", "stale", "shrinks"],
)
def test_appends(values: list[int | None], extents: list[ExtentRead], wrong: int) -> None:
    assert len(wrong_appends(values, APPENDS, extents)) == wrong


def test_appends_are_in_the_order_in_which_they_were_answered() -> None:
    """One that began before another was answered may be on either side of it."""
    answered = [
        AppendOperation(1, 1, 1, 4, 1),
        AppendOperation(2, 1, 2, 5, 0),
        AppendOperation(3, 1, 6, 7, 2),
    ]
    assert wrong_appends([2, 1, 3], answered, []) == []
    answered[2].start, answered[0].start = 1, 2
    assert len(wrong_appends([2, 3, 1], answered, [])) == 1


def test_extensions_take_place_once_and_do_not_overlap() -> None:
    assert wrong_extensions(0, []) == []
    assert wrong_extensions(5, [(2, 3), (3, 0)]) == []
    assert wrong_extensions(5, [(2, 3), (1, None), (3, None)]) == []
    assert "do not lead" in wrong_extensions(7, [(2, 0), (3, None)])[0]
    assert "overlap" in wrong_extensions(4, [(2, 0), (2, 1)])[0]
