"""What the steps on datasets of a random program are called with; None where there is nothing to call them with."""

from __future__ import annotations

from typing import Any

from tests.support.programs.draft import Draft, Made, draw_index, draws, draws_like
from tests.support.programs.values import COMPOUNDS, FILLED, NUMERIC, TEXTS, TYPES, WRITTEN_FIELDS


@draws(12)
def create_dataset(draft: Draft) -> dict[str, Any]:
    path, type, shape = draft.name(), str(draft.one(TYPES)), draft.shape()
    shape = shape or (2,) if type == "sequence" else shape  # one sequence is taken for several elements
    options: dict[str, Any] = {}
    if shape and draft.chance(0.5) and all(shape):
        options["chunks"] = tuple(int(draft.rng.integers(1, length + 1)) for length in shape)
        if draft.chance(0.6):
            grown = [length + int(draft.rng.integers(0, 5)) for length in shape]
            options["maxshape"] = tuple(None if draft.chance(0.3) else length for length in grown)
        options |= {"compression": "gzip"} if draft.chance(0.3) else {}
        options |= {"shuffle": True} if draft.chance(0.2) else {}
        options |= {"fletcher32": True} if draft.chance(0.1) else {}
    fill = draft.seed() if type in FILLED and draft.chance(0.3) else None
    data = draft.seed() if type != "array" and draft.chance(0.5) else None  # arrays neither takes at creation
    draft.datasets[path] = Made(type, shape, options.get("maxshape"))
    return {"path": path, "type": type, "shape": shape, "data": data, "fill": fill, "options": options}


@draws(1)
def require_dataset(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset(NUMERIC)
    if path is None or draft.chance(0.3):
        return {"path": draft.name(), "type": "<i4", "shape": (2,)}
    made = draft.datasets[path]
    return {"path": path, "type": draft.one([made.type, made.type, "<f8"]), "shape": made.shape}


@draws(2)
def assign(draft: Draft) -> dict[str, Any]:
    value, type, shape = draft.one(
        [
            (7, "<i8", ()),
            (2.5, "<f8", ()),
            ([1, 2, 3], "<i8", (3,)),
            ("héllo", "text", ()),
            (True, "bool", ()),
            (b"abc", "S5", ()),
        ]
    )
    path = draft.name()
    draft.datasets[path] = Made(type, shape, None)
    return {"path": path, "value": value}


@draws(14)
def write(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset()
    if path is None:
        return None
    made = draft.datasets[path]
    index, shape = draw_index(draft.rng, made.shape)
    scalar = draft.chance(0.2) and made.type in NUMERIC
    return {
        "path": path,
        "index": index,
        "type": made.type,
        "shape": () if scalar else shape,
        "data": draft.seed(),
    }


@draws(3)
def write_field(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset(COMPOUNDS)
    if path is None:
        return None
    made = draft.datasets[path]
    index, shape = draw_index(draft.rng, made.shape)
    field = draft.one(WRITTEN_FIELDS[made.type])
    whole = {"path": path, "index": index, "type": made.type, "shape": shape}
    return {**whole, "field": field, "data": draft.seed()}


@draws(14)
def read(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset()
    return (
        None
        if path is None
        else {"path": path, "index": draw_index(draft.rng, draft.datasets[path].shape)[0]}
    )


@draws(3)
def read_field(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset(COMPOUNDS)
    if path is None:
        return None
    made = draft.datasets[path]
    names = list(COMPOUNDS[made.type])
    fields = draft.one([*names, names[:2], "nosuch"])
    return {"path": path, "fields": fields, "index": draw_index(draft.rng, made.shape)[0]}


@draws(2)
def read_direct(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset(NUMERIC)
    if path is None or not draft.datasets[path].shape:
        return None
    made = draft.datasets[path]
    return {"path": path, "type": made.type, "shape": made.shape}


@draws(2)
def write_direct(draft: Draft) -> dict[str, Any] | None:
    arguments = read_direct(draft)
    return None if arguments is None else {**arguments, "data": draft.seed()}


@draws(2)
def read_as(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset(NUMERIC)
    if path is None:
        return None
    return {"path": path, "type": "<f8", "index": draw_index(draft.rng, draft.datasets[path].shape)[0]}


@draws(2)
def read_text(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset(TEXTS if draft.chance(0.9) else None)
    return None if path is None else {"path": path}


@draws(2)
def iterate(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset()
    return None if path is None else {"path": path}


draws_like(1, "length", iterate)


@draws(6)
def resize(draft: Draft) -> dict[str, Any] | None:
    resizable = [path for path, made in draft.datasets.items() if made.maxshape is not None]
    path = draft.one(resizable) if resizable and draft.chance(0.95) else draft.dataset()
    if path is None:
        return None
    made = draft.datasets[path]
    most = made.maxshape or made.shape
    shape = tuple(int(draft.rng.integers(1, 8 if top is None else max(top, 1) + 1)) for top in most)
    if made.maxshape is not None:
        made.shape = shape
    elif not draft.chance(0.2):
        return None
    return {"path": path, "shape": shape}


@draws(2)
def resize_axis(draft: Draft) -> dict[str, Any] | None:
    resizable = [path for path, made in draft.datasets.items() if made.maxshape]
    if not resizable:
        return None
    path = draft.one(resizable)
    made = draft.datasets[path]
    axis = int(draft.rng.integers(0, len(made.shape)))
    top = (made.maxshape or made.shape)[axis]
    size = int(draft.rng.integers(1, 8 if top is None else top + 1))
    made.shape = (*made.shape[:axis], size, *made.shape[axis + 1 :])
    return {"path": path, "axis": axis, "size": size}


draws_like(3, "info", iterate)


@draws(2)
def create_of_type(draft: Draft) -> dict[str, Any] | None:
    if not draft.types:
        return None
    path, committed, shape = draft.name(), draft.one(draft.types), draft.shape(scalar=False)
    draft.datasets[path] = Made(draft.types[committed], shape, None, committed=True)
    return {"path": path, "type": committed, "shape": shape}


@draws(1)
def label_dimension(draft: Draft) -> dict[str, Any] | None:
    path = draft.dataset()
    if path is None or not draft.datasets[path].shape:
        return None
    return {"path": path, "axis": 0, "label": draft.one(["x", "é"])}


@draws(2)
def scale(draft: Draft) -> dict[str, Any] | None:
    path, scale = draft.dataset(NUMERIC), draft.dataset(NUMERIC)
    if path is None or scale is None or path in draft.scales or scale in draft.scaled or path == scale:
        return None
    if not draft.datasets[path].shape:
        return None
    draft.scales.add(scale)
    draft.scaled.add(path)
    return {"path": path, "scale": scale, "name": draft.one(["", "scale"])}


@draws(2)
def dimensions(draft: Draft) -> dict[str, Any] | None:
    path = draft.one(draft.scaled) if draft.scaled else draft.dataset()
    return None if path is None else {"path": path}
