"""Histories of operations, and whether an order of them explains all answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Any

Value = Hashable


class Action(Enum):
    """What an operation does to its register, whose value is None where there is nothing."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    """Sets the value where there is none, else is refused."""
    DELETE = "delete"
    """Removes the value where there is one, else is refused."""
    GROW = "grow"
    """Moves one of two bounds outwards; `Growth` says by how much."""


@dataclass(frozen=True, slots=True)
class Growth:
    """By how many elements a dataset is to grow, `below` its lower bound or at its upper one; `start` is the answer."""

    count: int
    below: bool
    start: int | None = None


@dataclass(slots=True, eq=False)
class Operation:
    """An operation on one register, from `invoked` to `returned`; without a return it is not known what became of it.

    `value` is what it writes or, of a read, has read. `refused` says that it was answered that it does not apply.
    """

    register: Hashable
    action: Action
    value: Value
    invoked: int
    client: str = ""
    returned: int | None = None
    refused: bool = False
    seconds: tuple[float, float] = (0.0, 0.0)
    """The times of both, for people."""

    def __str__(self) -> str:
        end, until = ("...", "") if self.returned is None else (str(self.returned), f"{self.seconds[1]:.3f}")
        refused = ", refused" if self.refused else ""
        when = f"at {self.seconds[0]:.3f}-{until}"
        return f"{self.invoked}-{end} {self.client}: {self.action.value} {self.value}{refused} {when}"


@dataclass(slots=True, eq=False)
class AppendOperation:
    """An append of elements that all have `value`; `start` is where the answer says they are.

    Those `below` the lower bound are told as places downwards from 0.
    """

    value: int
    count: int
    invoked: int
    returned: int | None = None
    start: int | None = None
    below: bool = False

    def answered(self, place: int, tick: int) -> None:
        """Note the place in the answer."""
        self.start, self.returned = (-place - self.count if self.below else place), tick


@dataclass(slots=True, eq=False)
class ExtentRead:
    """A read of the extent that was answered: of its upper end or, downwards from 0, of its lower one."""

    length: int
    invoked: int
    returned: int
    below: bool = False


@dataclass(slots=True)
class History:
    """All operations of a run."""

    operations: list[Operation] = field(default_factory=list)
    appends: list[AppendOperation] = field(default_factory=list)
    extents: list[ExtentRead] = field(default_factory=list)
    extensions: list[tuple[int, int | None]] = field(default_factory=list)
    """By how much an extent was to grow, and where the answer says that the new elements begin."""
    ticks: Any = field(default_factory=lambda: itertools.count(1))
    clock: Callable[[], float] = lambda: 0.0
    path: str = ""
    """The clone whose registers are told here, empty for the domain."""

    def of(self, path: str) -> History:
        """Return the part of this history that tells of a clone."""
        return replace(self, path=path)

    def named(self, register: Hashable) -> Hashable:
        """Return the name of a register among those of the domain and of all clones."""
        return (self.path, register) if self.path else register

    def invoke(self, register: Hashable, action: Action, value: Value = None, client: str = "") -> Operation:
        """Note that an operation is about to be sent."""
        operation = Operation(self.named(register), action, value, next(self.ticks), client)
        operation.seconds = (self.clock(), 0.0)
        self.operations.append(operation)
        return operation

    def respond(self, operation: Operation, value: Value = None, *, refused: bool = False) -> None:
        """Note its answer; `value` is what a read has read."""
        operation.returned = next(self.ticks)
        operation.seconds = (operation.seconds[0], self.clock())
        operation.refused = refused
        if operation.action is Action.READ:
            operation.value = value

    def appended(self, growth: Operation, start: int | None, value: Value, places: range) -> None:
        """Note that an append of `value` was answered, or was not, of the elements that are among `places`.

        Where the elements are of one that was not answered, reads tell.
        """
        size = growth.value
        assert isinstance(size, Growth)
        found = [self.named(("element", place)) for place in places]
        if start is None:
            seen = {one.register for one in self.operations if one.value == value}
            found = [register for register in found if register in seen]
        else:
            growth.value = replace(size, start=start)
            self.respond(growth)
            found = [
                register
                for at, register in zip(places, found, strict=True)
                if start <= at < start + size.count
            ]
        for register in found:
            written = Operation(register, Action.WRITE, value, growth.invoked, growth.client)
            written.returned, written.seconds = growth.returned, growth.seconds
            self.operations.append(written)

    def by_register(self) -> dict[Hashable, list[Operation]]:
        """Return the operations of each register, in the order of invocation."""
        found: dict[Hashable, list[Operation]] = {}
        for operation in self.operations:
            found.setdefault(operation.register, []).append(operation)
        return found


Configuration = tuple[Value, frozenset[Operation]]
"""A register's value, and the operations under way that have taken effect."""
ANY_CHANGE = (Action.WRITE, Action.CREATE, Action.DELETE)
DELETIONS = (Action.DELETE,)
"""What may be repeated where no message is lost: a deletion that finds nothing does not know who has deleted."""


def wrong_registers(history: History, *, repeats: Collection[Action] = ()) -> list[str]:
    """Return a sentence, with the operations, for each register whose history is not linearizable."""
    sentences = []
    for register, operations in history.by_register().items():
        refuted = refuted_by(operations, repeats=repeats)
        if refuted is not None:
            lines = "\n".join(f"  {operation}" for operation in operations)
            sentences.append(f"{register} is not linearizable: {refuted}; its operations:\n{lines}")
    return sentences


def refuted_by(operations: Sequence[Operation], *, repeats: Collection[Action] = ()) -> Operation | None:
    """Return the first operation whose answer no order explains, None if the history of a register is linearizable.

    The register has no value at first. What a read without an answer would have read does not matter.
    """
    configurations: set[Configuration] = {(None, frozenset())}
    under_way: list[Operation] = []
    for _, is_return, operation in _events(operations):
        if not is_return:
            under_way.append(operation)
            continue
        reached = _closure(configurations, under_way, repeats)
        configurations = {
            (value, applied - {operation}) for value, applied in reached if operation in applied
        }
        under_way.remove(operation)
        if not configurations:
            return operation
    return None


def _events(operations: Sequence[Operation]) -> list[tuple[int, bool, Operation]]:
    """Return invocations and returns in order, without operations that have no return and no visible effect."""
    seen = {operation.value for operation in operations if operation.action is Action.READ}
    indirectly = None in seen or any(
        operation.action is Action.GROW
        or (operation.returned is not None and (operation.refused or operation.action is Action.CREATE))
        for operation in operations
    )
    events = []
    for operation in operations:
        if operation.returned is None:
            if operation.action is Action.READ:
                continue
            removes = operation.action is Action.DELETE or operation.value is None
            if not indirectly and (removes or operation.value not in seen):
                continue
        events.append((operation.invoked, False, operation))
        if operation.returned is not None:
            events.append((operation.returned, True, operation))
    return sorted(events, key=lambda event: event[0])


def _closure(
    configurations: Iterable[Configuration], under_way: Sequence[Operation], repeats: Collection[Action]
) -> set[Configuration]:
    """Return all configurations that operations under way can lead to."""
    reached = set(configurations)
    todo = list(reached)
    while todo:
        value, applied = todo.pop()
        for operation in under_way:
            again = operation in applied
            if again and (operation.action not in repeats or operation.refused):
                continue
            for after in _after(operation, value, repeats):
                found = (after, applied if again else applied | {operation})
                if found not in reached:
                    reached.add(found)
                    todo.append(found)
    return reached


def _after(operation: Operation, value: Value, repeats: Collection[Action]) -> tuple[Value, ...]:
    """Return the values after an operation on a register of this value, none if its answer would be another."""
    match operation.action:
        case Action.READ:
            return (value,) if operation.value == value else ()
        case Action.WRITE:
            return (operation.value, value) if operation.refused else (operation.value,)
        case Action.GROW:
            return _grown(operation.value, value)
        case Action.CREATE:
            applies, after = value is None, operation.value
        case Action.DELETE:
            # A deletion that was sent again finds nothing any more, and succeeds.
            applies, after = value is not None or Action.DELETE in repeats, None
    if operation.returned is None:
        return (after if applies else value,)
    if operation.refused:
        blocked = value is not None if operation.action is Action.CREATE else value is None
        return (value,) if blocked else ()
    return (after,) if applies else ()


def _grown(growth: Value, bounds: Value) -> tuple[Value, ...]:
    """Return the bounds of a dataset that has grown, none if the answer says that it has grown elsewhere."""
    assert isinstance(growth, Growth)
    if not isinstance(bounds, tuple):
        return ()
    low, high = bounds
    start = low - growth.count if growth.below else high
    after = (start, high) if growth.below else (low, high + growth.count)
    return (after,) if growth.start in (None, start) else ()


def wrong_appends(
    values: Sequence[Value], appends: Sequence[AppendOperation], extents: Sequence[ExtentRead], first: int = 0
) -> list[str]:
    """Return a sentence for each append that is not in the final `values` as it should be, and for each wrong extent.

    An append that was answered is there once, whole, where its answer says; any other once or not at all. `first`
    elements were there before. No append is before another one that was answered before it began, and no read of the
    extent is behind a read or an append that was.
    """
    sentences = [f"{text}" for append in appends if (text := _wrong_append(values, append))]
    known = {append.value for append in appends}
    sentences += [
        f"element {place} is {value}, which nobody appended"
        for place, value in enumerate(values)
        if place >= first and value not in known
    ]
    answered = [(one.start, one) for one in appends if one.start is not None and one.returned is not None]
    sentences += [
        f"the append of {later.value} at {after} is before that of {one.value} at {start}, answered before it began"
        for start, one in answered
        for after, later in answered
        if one.returned is not None and one.returned < later.invoked and after < start
    ]
    for read in extents:
        before = [
            append.start + append.count
            for append in appends
            if append.start is not None and append.returned is not None and append.returned < read.invoked
        ]
        before += [other.length for other in extents if other.returned < read.invoked]
        if read.length < max(before, default=0):
            sentences.append(f"the extent read at {read.invoked} is {read.length}, not {max(before)} or more")
    return sentences


def wrong_extensions(extent: int, extensions: Sequence[tuple[int, int | None]]) -> list[str]:
    """Return a sentence if extensions by so much do not lead to `extent`.

    Those that were answered have elements of their own, from where the answer says; any other took place once or not
    at all.
    """
    answered = sorted((start, count) for count, start in extensions if start is not None)
    sentences = [
        f"extensions by {count} at {start} and at {after} overlap"
        for (start, count), (after, _) in pairwise(answered)
        if start + count > after
    ]
    possible = {sum(count for _, count in answered)}
    for count, start in extensions:
        if start is None:
            possible |= {total + count for total in possible}
    if extent not in possible:
        sentences.append(f"extensions {extensions} do not lead to the extent {extent}")
    return sentences


def _wrong_append(values: Sequence[Value], append: AppendOperation) -> str:
    places = [place for place, value in enumerate(values) if value == append.value]
    if append.returned is None and not places:
        return ""
    start = append.start if append.start is not None else places[0] if places else 0
    if places == list(range(start, start + append.count)):
        return ""
    wanted = f"{append.count} at {append.start}" if append.returned is not None else f"{append.count} or none"
    return f"the append of {append.value} is at {places}, not {wanted}"
