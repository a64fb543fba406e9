"""What the steps on attributes of a random program are called with."""

from __future__ import annotations

from typing import Any

from tests.support.programs.draft import Draft, draws, draws_like
from tests.support.programs.values import NUMERIC, TYPES

ATTRIBUTE_NAMES = ("a", "b", "long name", "ä/ö", "units")


def attribute_of(draft: Draft, *, new: bool) -> dict[str, Any]:
    path = draft.object()
    names = draft.attributes.setdefault(path, set())
    if new:
        names.add(str(draft.one(ATTRIBUTE_NAMES)))
    return {"path": path, "name": draft.one(sorted(names) or ["a"]) if draft.chance(0.95) else "nosuch"}


@draws(10)
def set_attribute(draft: Draft) -> dict[str, Any]:
    type, shape = draft.one(TYPES), draft.shape()
    shape = shape[:1] if type == "record" else shape  # several dimensions of them h5pyd reads wrong
    shape = shape or (2,) if type == "sequence" else shape  # which h5py takes for several elements
    return {**attribute_of(draft, new=True), "type": type, "shape": shape, "data": draft.seed()}


@draws(5)
def assign_attribute(draft: Draft) -> dict[str, Any]:
    values = [7, -2.5, "é text", b"bytes", True, [1, 2, 3], [1.5, 2], ["a", "bc"], "", (), 1 + 2j, 2**40]
    return {**attribute_of(draft, new=True), "value": draft.one(values)}


@draws(1)
def empty_attribute(draft: Draft) -> dict[str, Any]:
    return {**attribute_of(draft, new=True), "type": draft.one(["<i4", "<f8", "S5"])}


@draws(3)
def modify_attribute(draft: Draft) -> dict[str, Any]:
    return {
        **attribute_of(draft, new=True),
        "type": draft.one(NUMERIC),
        "shape": draft.shape(),
        "data": draft.seed(),
    }


@draws(1)
def replace_attribute(draft: Draft) -> dict[str, Any]:
    return {**attribute_of(draft, new=True), "value": 7}


@draws(5)
def get_attribute(draft: Draft) -> dict[str, Any]:
    return attribute_of(draft, new=False)


draws_like(3, "delete_attribute", get_attribute)


@draws(3)
def attributes(draft: Draft) -> dict[str, Any]:
    return {"path": draft.object()}


@draws(2)
def refer_in_attribute(draft: Draft) -> dict[str, Any]:
    return {**attribute_of(draft, new=True), "target": draft.object()}


@draws(2)
def follow_attribute(draft: Draft) -> dict[str, Any] | None:
    return None if draft.unlinked else attribute_of(draft, new=False)
