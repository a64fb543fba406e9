"""A random program while it is drawn: what the file will hold by then, so that most steps work on what is there."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.programs.all_verbs import CHANGES
from tests.support.programs.program import Session, Step

Shape = tuple[int, ...]
Arguments = dict[str, Any]
Drawing = Callable[["Draft"], "Arguments | None"]

DRAWINGS: dict[str, tuple[int, Drawing]] = {}
"""For each verb that is drawn how often it is, and what draws its arguments; None where nothing is there for it."""
REFUSED = frozenset({"create_group", "unlink", "replace_attribute"})
"""Changes that h5pyd refuses as h5py does where a file is open for reading; others it makes in its memory."""
LOOK = Step("look", {})


def draws(weight: int) -> Callable[[Drawing], Drawing]:
    """Register what draws the arguments of the verb of its name."""

    def register(drawing: Drawing) -> Drawing:
        DRAWINGS[drawing.__name__] = (weight, drawing)
        return drawing

    return register


def draws_like(weight: int, name: str, drawing: Drawing) -> None:
    """Register a verb that is called with what another one is called with."""
    DRAWINGS[name] = (weight, drawing)


@dataclass
class Made:
    """A dataset that a program made."""

    type: str
    shape: Shape
    maxshape: tuple[int | None, ...] | None
    committed: bool = False


@dataclass
class Draft:
    """Draws steps, and remembers what they make; some steps are wrong on purpose."""

    rng: np.random.Generator
    groups: list[str] = field(default_factory=lambda: ["/"])
    datasets: dict[str, Made] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    unlinked: bool = False
    regions: dict[str, str] = field(default_factory=dict)
    scales: set[str] = field(default_factory=set)
    scaled: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    attributes: dict[str, set[str]] = field(default_factory=dict)
    count: int = 0

    def session(self, mode: str) -> Session:
        reading = mode == "r"
        verbs = [verb for verb in DRAWINGS if _may(verb, reading=reading)]
        weights = np.array([DRAWINGS[verb][0] for verb in verbs], float)
        steps = [] if mode == "w" else [LOOK]
        for _ in range(int(self.rng.integers(6, 24))):
            verb = str(self.rng.choice(verbs, p=weights / weights.sum()))
            arguments = DRAWINGS[verb][1](self)
            if arguments is not None:
                steps.append(Step(verb, arguments))
        return Session(mode, self.chance(0.6), (*steps, LOOK))

    def reading(self) -> Session:
        """Draw a session that may not change anything: what it tries to make is not there afterwards."""
        draft = deepcopy(self)
        session = draft.session("r")
        self.rng = draft.rng
        return session

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def some(self, choices: list[Any], least: int, most: int) -> list[Any]:
        return [self.one(choices) for _ in range(int(self.rng.integers(least, most)))]

    def one(self, choices: Any) -> Any:
        choices = sorted(choices) if isinstance(choices, set) else list(choices)
        return choices[int(self.rng.integers(0, len(choices)))]

    def seed(self) -> int:
        return int(self.rng.integers(0, 2**31))

    def name(self) -> str:
        """Return a path that is not there, now and then one that is, or below what is not there."""
        if self.chance(0.02):
            taken = [path for path in self.everything() if path != "/" or self.chance(0.1)]
            return str(self.one(taken or ["/taken"]))
        self.count += 1
        parent = str(self.one(self.groups))
        middle = f"new{self.count}/" if self.chance(0.05) else ""
        return f"{parent.rstrip('/')}/{middle}{self.one(['x', 'y', 'é', 'with space', 'z.1'])}{self.count}"

    def everything(self) -> list[str]:
        return [*self.groups, *self.datasets, *self.types, *self.links]

    def dataset(self, types: Any = None) -> str | None:
        """Return the path of a dataset, of one of some types; None if there is none."""
        found = [path for path, made in self.datasets.items() if types is None or made.type in types]
        return str(self.one(found)) if found else None

    def object(self) -> str:
        if self.chance(0.03):
            return "/no/such"
        return str(self.one([*self.groups, *self.datasets, *self.datasets, *self.types]))

    def shape(self, *, scalar: bool = True) -> Shape:
        rank = int(self.rng.choice([0, 1, 2, 3], p=[0.1, 0.45, 0.35, 0.1]))
        least = 0 if self.chance(0.05) else 1
        return tuple(self.rng.integers(least, 7, rank or (0 if scalar else 1)).tolist())


def _may(verb: str, *, reading: bool) -> bool:
    return verb in REFUSED or verb not in CHANGES if reading else verb != "replace_attribute"


def draw_index(rng: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
    """Return a selection of a dataset of a shape, and the shape of what it selects."""
    if rng.random() < 0.1 or not shape:
        return (() if rng.random() < 0.5 else ..., shape)
    if rng.random() < 0.08:
        mask = rng.random(shape) < 0.4
        return mask, (int(mask.sum()),)
    rank = int(rng.integers(1, len(shape) + 1))
    lists, items, selected = 0, [], []
    for length in shape[:rank]:
        item, count = _place(rng, length, may_list=not lists)
        lists += isinstance(item, list)
        items.append(item)
        selected += [] if count is None else [count]
    if lists:  # of h5pyd's lists: see LISTS in the known differences
        items = [item % n if isinstance(item, int) else item for item, n in zip(items, shape, strict=False)]
        items += [slice(None)] * (len(shape) - rank)
        return tuple(items), (*selected, *shape[rank:])
    if rank < len(shape) and rng.random() < 0.3:
        items.append(...)
    index = items[0] if len(items) == 1 and rng.random() < 0.5 else tuple(items)
    return index, (*selected, *shape[rank:])


def _place(rng: np.random.Generator, length: int, *, may_list: bool) -> tuple[Any, int | None]:
    kind = rng.random()
    if kind < 0.02:
        return length + 3, None
    if kind < 0.25 and length:
        return int(rng.integers(-length, length)), None
    if kind < 0.4 and may_list and length:
        count = int(rng.integers(1, length + 1))
        chosen = sorted(rng.choice(length, count, replace=False).tolist())
        return chosen, count
    if kind < 0.6:
        return slice(None), length
    start, stop = sorted(rng.integers(0, length + 1, 2).tolist())
    step = int(rng.integers(1, 4)) if kind < 0.8 else None
    return slice(start, stop, step), len(range(start, stop, step or 1))
