"""What clients of a simulation asked for and were answered, in one order of events."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from enum import Enum
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
