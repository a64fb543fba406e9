"""A program of h5py calls as data: steps in sessions, drawn from a seed, the same ones for the same seed.

The drawing keeps a rough idea of what the file will hold, so that most steps work on something that is there;
some are wrong on purpose. What a step means is in `program_verb`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hsparse.testing.program_type import COMPOUNDS, FILLED, NUMERIC, TEXTS, TYPES, WRITTEN_FIELDS
from hsparse.testing.program_verb import CHANGES

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A call: the verb's name, and what it is called with."""

    verb: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.verb}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


@dataclass(frozen=True)
class Session:
    """What is done between opening a file and closing it. With `eager`, each change is flushed."""

    mode: str
    eager: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    seed: int
    sessions: tuple[Session, ...]

    def __str__(self) -> str:
        lines = [f"program {self.seed}"]
        for session in self.sessions:
            lines += [f"open {session.mode!r}{', flushing' * session.eager}"]
            lines += [f"    {step}" for step in session.steps]
        return "\n".join(lines)


def draw_program(seed: int) -> Program:
    """Return the program of a seed: one session that makes a file, and up to three that open it again."""
    draft = Draft(np.random.default_rng(seed))
    modes = ["w", *draft.some(["a", "r+", "r", "a"], 1, 4)]
    return Program(seed, tuple(draft.reading() if mode == "r" else draft.session(mode) for mode in modes))


@dataclass
class Made:
    """A dataset that a program made."""

    type: str
    shape: Shape
    maxshape: tuple[int | None, ...] | None
    committed: bool = False


WEIGHTS = {
    "create_group": 6,
    "require_group": 1,
    "create_dataset": 12,
    "require_dataset": 1,
    "ordered_group": 1,
    "assign": 2,
    "write": 14,
    "write_field": 3,
    "read": 14,
    "read_field": 3,
    "read_direct": 2,
    "write_direct": 2,
    "read_as": 2,
    "read_text": 2,
    "iterate": 2,
    "length": 1,
    "resize": 6,
    "resize_axis": 2,
    "info": 3,
    "set_attribute": 10,
    "assign_attribute": 5,
    "empty_attribute": 1,
    "modify_attribute": 3,
    "replace_attribute": 1,
    "get_attribute": 5,
    "delete_attribute": 3,
    "attributes": 3,
    "soft_link": 3,
    "external_link": 1,
    "hard_link": 3,
    "unlink": 4,
    "keys": 3,
    "contains": 3,
    "open_link": 3,
    "get_link": 3,
    "get_class": 2,
    "visit": 1,
    "refer": 3,
    "follow": 3,
    "refer_to_regions": 2,
    "follow_regions": 2,
    "refer_in_attribute": 2,
    "follow_attribute": 2,
    "commit_type": 2,
    "create_of_type": 2,
    "label_dimension": 1,
    "scale": 2,
    "dimensions": 2,
    "flush": 3,
    "look": 2,
}
REFUSED = frozenset({"create_group", "unlink", "replace_attribute"})
"""Changes that h5pyd refuses as h5py does where a file is open for reading; others it makes in its memory."""
CHANGING = [verb for verb in WEIGHTS if verb != "replace_attribute"]
ATTRIBUTE_NAMES = ("a", "b", "long name", "ä/ö", "units")


@dataclass
class Draft:
    """Draws steps, and remembers what they make."""

    rng: np.random.Generator
    groups: list[str] = field(default_factory=lambda: ["/"])
    datasets: dict[str, Made] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    references: dict[str, int] = field(default_factory=dict)
    regions: dict[str, str] = field(default_factory=dict)
    scales: set[str] = field(default_factory=set)
    scaled: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    attributes: dict[str, set[str]] = field(default_factory=dict)
    count: int = 0

    def session(self, mode: str) -> Session:
        verbs = (
            [verb for verb in WEIGHTS if verb not in CHANGES or verb in REFUSED] if mode == "r" else CHANGING
        )
        weights = np.array([WEIGHTS[verb] for verb in verbs], float)
        steps = [Step("look", {})] if mode != "w" else []
        for _ in range(int(self.rng.integers(6, 24))):
            verb = str(self.rng.choice(verbs, p=weights / weights.sum()))
            arguments = getattr(self, f"_{verb}", self._plain)()
            if arguments is not None:
                steps.append(Step(verb, arguments))
        return Session(mode, self.chance(0.6), (*steps, Step("look", {})))

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

    def index(self, shape: Shape) -> tuple[Any, Shape]:
        """Return a selection of a dataset of a shape, and the shape of what it selects."""
        if self.chance(0.1) or not shape:
            return (self.one([(), ...]), shape)
        if self.chance(0.08):
            mask = self.rng.random(shape) < 0.4
            return mask, (int(mask.sum()),)
        rank = int(self.rng.integers(1, len(shape) + 1))
        lists, items, selected = 0, [], []
        for length in shape[:rank]:
            item, count = self._place(length, may_list=not lists)
            lists += isinstance(item, list)
            items.append(item)
            selected += [] if count is None else [count]
        if lists:  # of h5pyd's lists: see LISTS in the known differences
            items = [
                item % n if isinstance(item, int) else item for item, n in zip(items, shape, strict=False)
            ]
            items += [slice(None)] * (len(shape) - rank)
            return tuple(items), (*selected, *shape[rank:])
        if rank < len(shape) and self.chance(0.3):
            items.append(...)
        index = items[0] if len(items) == 1 and self.chance(0.5) else tuple(items)
        return index, (*selected, *shape[rank:])

    def _place(self, length: int, *, may_list: bool) -> tuple[Any, int | None]:
        kind = self.rng.random()
        if kind < 0.02:
            return length + 3, None
        if kind < 0.25 and length:
            return int(self.rng.integers(-length, length)), None
        if kind < 0.4 and may_list and length:
            count = int(self.rng.integers(1, length + 1))
            chosen = sorted(self.rng.choice(length, count, replace=False).tolist())
            return chosen, count
        if kind < 0.6:
            return slice(None), length
        start, stop = sorted(self.rng.integers(0, length + 1, 2).tolist())
        step = int(self.rng.integers(1, 4)) if kind < 0.8 else None
        return slice(start, stop, step), len(range(start, stop, step or 1))

    # What each verb is called with; None where there is nothing to call it with.

    def _plain(self) -> dict[str, Any]:
        return {}

    def _create_group(self) -> dict[str, Any]:
        path = self.name()
        self.groups.append(path)
        return {"path": path}

    def _require_group(self) -> dict[str, Any]:
        return {"path": self.one(self.everything())} if self.chance(0.5) else self._create_group()

    def _create_dataset(self) -> dict[str, Any]:
        path, type, shape = self.name(), str(self.one(TYPES)), self.shape()
        shape = shape or (2,) if type == "sequence" else shape  # one sequence is taken for several elements
        options: dict[str, Any] = {}
        if shape and self.chance(0.5) and all(shape):
            options["chunks"] = tuple(int(self.rng.integers(1, length + 1)) for length in shape)
            if self.chance(0.6):
                grown = [length + int(self.rng.integers(0, 5)) for length in shape]
                options["maxshape"] = tuple(None if self.chance(0.3) else length for length in grown)
            options |= {"compression": "gzip"} if self.chance(0.3) else {}
            options |= {"shuffle": True} if self.chance(0.2) else {}
            options |= {"fletcher32": True} if self.chance(0.1) else {}
        fill = self.seed() if type in FILLED and self.chance(0.3) else None
        data = self.seed() if type != "array" and self.chance(0.5) else None  # arrays neither takes at creation
        self.datasets[path] = Made(type, shape, options.get("maxshape"))
        return {"path": path, "type": type, "shape": shape, "data": data, "fill": fill, "options": options}

    def _require_dataset(self) -> dict[str, Any] | None:
        path = self.dataset(NUMERIC)
        if path is None or self.chance(0.3):
            return {"path": self.name(), "type": "<i4", "shape": (2,)}
        made = self.datasets[path]
        return {"path": path, "type": self.one([made.type, made.type, "<f8"]), "shape": made.shape}

    _ordered_group = _create_group

    def _assign(self) -> dict[str, Any]:
        value, type, shape = self.one(
            [
                (7, "<i8", ()),
                (2.5, "<f8", ()),
                ([1, 2, 3], "<i8", (3,)),
                ("héllo", "text", ()),
                (True, "bool", ()),
                (b"abc", "S5", ()),
            ]
        )
        path = self.name()
        self.datasets[path] = Made(type, shape, None)
        return {"path": path, "value": value}

    def _write(self) -> dict[str, Any] | None:
        path = self.dataset()
        if path is None:
            return None
        made = self.datasets[path]
        index, shape = self.index(made.shape)
        scalar = self.chance(0.2) and made.type in NUMERIC
        return {
            "path": path,
            "index": index,
            "type": made.type,
            "shape": () if scalar else shape,
            "data": self.seed(),
        }

    def _write_field(self) -> dict[str, Any] | None:
        path = self.dataset(COMPOUNDS)
        if path is None:
            return None
        made = self.datasets[path]
        index, shape = self.index(made.shape)
        field = self.one(WRITTEN_FIELDS[made.type])
        whole = {"path": path, "index": index, "type": made.type, "shape": shape}
        return {**whole, "field": field, "data": self.seed()}

    def _read(self) -> dict[str, Any] | None:
        path = self.dataset()
        return None if path is None else {"path": path, "index": self.index(self.datasets[path].shape)[0]}

    def _read_direct(self) -> dict[str, Any] | None:
        path = self.dataset(NUMERIC)
        if path is None or not self.datasets[path].shape:
            return None
        made = self.datasets[path]
        return {"path": path, "type": made.type, "shape": made.shape}

    def _write_direct(self) -> dict[str, Any] | None:
        arguments = self._read_direct()
        return None if arguments is None else {**arguments, "data": self.seed()}

    def _label_dimension(self) -> dict[str, Any] | None:
        path = self.dataset()
        if path is None or not self.datasets[path].shape:
            return None
        return {"path": path, "axis": 0, "label": self.one(["x", "é"])}

    def _scale(self) -> dict[str, Any] | None:
        path, scale = self.dataset(NUMERIC), self.dataset(NUMERIC)
        if path is None or scale is None or path in self.scales or scale in self.scaled or path == scale:
            return None
        if not self.datasets[path].shape:
            return None
        self.scales.add(scale)
        self.scaled.add(path)
        return {"path": path, "scale": scale, "name": self.one(["", "scale"])}

    def _dimensions(self) -> dict[str, Any] | None:
        path = self.one(self.scaled) if self.scaled else self.dataset()
        return None if path is None else {"path": path}

    def _read_field(self) -> dict[str, Any] | None:
        path = self.dataset(COMPOUNDS)
        if path is None:
            return None
        made = self.datasets[path]
        names = list(COMPOUNDS[made.type])
        fields = self.one([*names, names[:2], "nosuch"])
        return {"path": path, "fields": fields, "index": self.index(made.shape)[0]}

    def _read_as(self) -> dict[str, Any] | None:
        path = self.dataset(NUMERIC)
        if path is None:
            return None
        return {"path": path, "type": "<f8", "index": self.index(self.datasets[path].shape)[0]}

    def _read_text(self) -> dict[str, Any] | None:
        path = self.dataset(TEXTS if self.chance(0.9) else None)
        return None if path is None else {"path": path}

    def _iterate(self) -> dict[str, Any] | None:
        path = self.dataset()
        return None if path is None else {"path": path}

    _length = _iterate
    _info = _iterate

    def _resize(self) -> dict[str, Any] | None:
        resizable = [path for path, made in self.datasets.items() if made.maxshape is not None]
        path = self.one(resizable) if resizable and self.chance(0.95) else self.dataset()
        if path is None:
            return None
        made = self.datasets[path]
        most = made.maxshape or made.shape
        shape = tuple(int(self.rng.integers(1, 8 if top is None else top + 1 or 2)) for top in most)
        if made.maxshape is not None:
            made.shape = shape
        elif not self.chance(0.2):
            return None
        return {"path": path, "shape": shape}

    def _resize_axis(self) -> dict[str, Any] | None:
        resizable = [path for path, made in self.datasets.items() if made.maxshape]
        if not resizable:
            return None
        path = self.one(resizable)
        made = self.datasets[path]
        axis = int(self.rng.integers(0, len(made.shape)))
        top = (made.maxshape or made.shape)[axis]
        size = int(self.rng.integers(1, 8 if top is None else top + 1))
        made.shape = (*made.shape[:axis], size, *made.shape[axis + 1 :])
        return {"path": path, "axis": axis, "size": size}

    def _attribute(self, *, new: bool) -> dict[str, Any]:
        path = self.object()
        names = self.attributes.setdefault(path, set())
        if new:
            names.add(str(self.one(ATTRIBUTE_NAMES)))
        return {"path": path, "name": self.one(sorted(names) or ["a"]) if self.chance(0.95) else "nosuch"}

    def _set_attribute(self) -> dict[str, Any]:
        type, shape = self.one(TYPES), self.shape()
        shape = shape[:1] if type == "record" else shape  # several dimensions of them h5pyd reads wrong
        shape = shape or (2,) if type == "sequence" else shape  # which h5py takes for several elements
        return {**self._attribute(new=True), "type": type, "shape": shape, "data": self.seed()}

    def _assign_attribute(self) -> dict[str, Any]:
        values = [7, -2.5, "é text", b"bytes", True, [1, 2, 3], [1.5, 2], ["a", "bc"], "", (), 1 + 2j, 2**40]
        return {**self._attribute(new=True), "value": self.one(values)}

    def _empty_attribute(self) -> dict[str, Any]:
        return {**self._attribute(new=True), "type": self.one(["<i4", "<f8", "S5"])}

    def _modify_attribute(self) -> dict[str, Any]:
        return {
            **self._attribute(new=True),
            "type": self.one(NUMERIC),
            "shape": self.shape(),
            "data": self.seed(),
        }

    def _get_attribute(self) -> dict[str, Any]:
        return self._attribute(new=False)

    _delete_attribute = _get_attribute

    def _replace_attribute(self) -> dict[str, Any]:
        return {**self._attribute(new=True), "value": 7}

    _follow_attribute = _get_attribute

    def _attributes(self) -> dict[str, Any]:
        return {"path": self.object()}

    def _soft_link(self) -> dict[str, Any]:
        path = self.name()
        self.links.append(path)
        return {"path": path, "target": self.object()}

    def _external_link(self) -> dict[str, Any]:
        path = self.name()
        self.links.append(path)
        return {"path": path, "file": "elsewhere.h5", "target": "/x"}

    def _hard_link(self) -> dict[str, Any]:
        path, target = self.name(), self.object()
        if target in self.datasets:
            self.datasets[path] = self.datasets[target]
        return {"path": path, "target": target}

    def _unlink(self) -> dict[str, Any]:
        path = str(self.one([*self.everything(), "/nosuch"]))
        if path == "/":
            path = "/nosuch"
        self.groups = [group for group in self.groups if not (group + "/").startswith(path + "/")]
        self.links = [link for link in self.links if not (link + "/").startswith(path + "/")]
        for known in (self.datasets, self.types):
            for gone in [item for item in known if (item + "/").startswith(path + "/")]:
                del known[gone]  # type: ignore[attr-defined]
        return {"path": path}

    def _keys(self) -> dict[str, Any]:
        return {"path": self.one(self.groups)}

    def _visit(self) -> dict[str, Any]:
        return {"path": "/"}  # from other groups h5pyd tells the names from the root, and the group's own

    def _contains(self) -> dict[str, Any]:
        return {"path": self.one([*self.everything(), "/nosuch", "/no/such"])}

    _get_link = _contains

    def _open_link(self) -> dict[str, Any] | None:
        return {"path": self.one(self.links)} if self.links else None

    _get_class = _contains

    def _refer(self) -> dict[str, Any]:
        path, targets = self.name(), [self.object() for _ in range(int(self.rng.integers(1, 4)))]
        self.references[path] = len(targets)
        return {"path": path, "targets": targets}

    def _follow(self) -> dict[str, Any] | None:
        return {"path": self.one(self.references)} if self.references else None

    def _refer_to_regions(self) -> dict[str, Any] | None:
        target = self.dataset(NUMERIC)
        if target is None or not self.datasets[target].shape:
            return None
        path = self.name()
        self.regions[path] = target
        indices = [self.index(self.datasets[target].shape)[0] for _ in range(2)]
        return {"path": path, "target": target, "indices": indices}

    def _follow_regions(self) -> dict[str, Any] | None:
        if not self.regions:
            return None
        path = self.one(self.regions)
        return {"path": path, "target": self.regions[path]}

    def _refer_in_attribute(self) -> dict[str, Any]:
        return {**self._attribute(new=True), "target": self.object()}

    def _commit_type(self) -> dict[str, Any]:
        path, type = self.name(), str(self.one(TYPES))
        self.types[path] = type
        return {"path": path, "type": type}

    def _create_of_type(self) -> dict[str, Any] | None:
        if not self.types:
            return None
        path, committed, shape = self.name(), self.one(self.types), self.shape(scalar=False)
        self.datasets[path] = Made(self.types[committed], shape, None, committed=True)
        return {"path": path, "type": committed, "shape": shape}
