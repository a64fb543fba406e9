"""Random objects to plan files of, and what a file of them must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hsparse.hdf5.format.file_fields import Addressed, Key
from hsparse.hdf5.format.messages.file_type import file_type
from hsparse.hdf5.format.messages.group_messages import StoredExternalLink, StoredSoftLink
from hsparse.hdf5.format.plan.file_plan import FilePlan
from hsparse.hdf5.format.plan.plan_elements import plan_elements
from hsparse.hdf5.format.plan.planned_object import PlannedAttribute, PlannedLink, PlannedTarget
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import from_json
from tests.support.characters import characters_but

SCALAR = {"class": "H5S_SCALAR"}
INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
TITLES = st.text(characters_but("\0/"), min_size=1, max_size=12).filter(lambda title: title != ".")
PATHS = st.text(characters_but("\0"), min_size=1, max_size=20)


def simple(*dims: int) -> dict[str, Any]:
    return {"class": "H5S_SIMPLE", "dims": list(dims)}


def number(name: str, value: int) -> PlannedAttribute:
    return PlannedAttribute(name, file_type(INT), SCALAR, Addressed(value.to_bytes(4, "little")))


def attribute(
    name: str, item: Any, value: Any, dims: tuple[int, ...], heap: GlobalHeapPlan, keys: dict[str, Key]
) -> PlannedAttribute:
    """Return an attribute of a JSON value."""
    datatype = parse_type(item)
    stored = file_type(datatype.item)
    values = from_json(value, dims, datatype.element)
    shape = simple(*dims) if dims else SCALAR
    return PlannedAttribute(name, stored, shape, plan_elements(stored, values, heap, keys.get))


def links(keys: list[Key], most: int = 30) -> st.SearchStrategy[list[PlannedLink]]:
    targets = (
        st.sampled_from(keys).map(PlannedTarget)
        | PATHS.map(StoredSoftLink)
        | st.tuples(PATHS, PATHS).map(lambda pair: StoredExternalLink(*pair))
    )
    return st.dictionaries(TITLES, targets, max_size=most).map(
        lambda some: [PlannedLink(title, target) for title, target in some.items()]
    )


def soft(count: int) -> list[PlannedLink]:
    return [
        PlannedLink(f"link {number * 7919 % 1_000_003}", StoredSoftLink("/" + "x" * (number % 40)))
        for number in range(count)
    ]


def numbers(most: int = 30) -> st.SearchStrategy[list[PlannedAttribute]]:
    return st.dictionaries(TITLES, st.integers(0, 2**31 - 1), max_size=most).map(
        lambda some: [number(name, value) for name, value in some.items()]
    )


def write(plan: FilePlan, path: Path) -> Path:
    path.write_bytes(plan.read(0, plan.size))
    return path


def int_bytes(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()
