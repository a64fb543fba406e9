"""What the steps on groups, links, references and committed types of a random program are called with."""

from __future__ import annotations

from typing import Any

from tests.support.programs.draft import Draft, draw_index, draws, draws_like
from tests.support.programs.values import NUMERIC, TYPES


@draws(6)
def create_group(draft: Draft) -> dict[str, Any]:
    path = draft.name()
    draft.groups.append(path)
    return {"path": path}


@draws(1)
def require_group(draft: Draft) -> dict[str, Any] | None:
    return {"path": draft.one(draft.everything())} if draft.chance(0.5) else create_group(draft)


draws_like(1, "ordered_group", create_group)


@draws(3)
def soft_link(draft: Draft) -> dict[str, Any]:
    path = draft.name()
    draft.links.append(path)
    return {"path": path, "target": draft.object()}


@draws(1)
def external_link(draft: Draft) -> dict[str, Any]:
    path = draft.name()
    draft.links.append(path)
    return {"path": path, "file": "elsewhere.h5", "target": "/x"}


@draws(3)
def hard_link(draft: Draft) -> dict[str, Any]:
    path, target = draft.name(), draft.object()
    if target in draft.datasets:
        draft.datasets[path] = draft.datasets[target]
    return {"path": path, "target": target}


@draws(4)
def unlink(draft: Draft) -> dict[str, Any]:
    path = str(draft.one([*draft.everything(), "/nosuch"]))
    if path == "/":
        path = "/nosuch"
    draft.groups = [group for group in draft.groups if not (group + "/").startswith(path + "/")]
    draft.links = [link for link in draft.links if not (link + "/").startswith(path + "/")]
    for gone in [item for item in (*draft.datasets, *draft.types) if (item + "/").startswith(path + "/")]:
        draft.datasets.pop(gone, None)
        draft.types.pop(gone, None)
    draft.unlinked = True
    draft.references.clear()  # HDF5 frees what has lost its last link, and more may have led to it
    return {"path": path}


@draws(3)
def keys(draft: Draft) -> dict[str, Any]:
    return {"path": draft.one(draft.groups)}


@draws(3)
def contains(draft: Draft) -> dict[str, Any]:
    return {"path": draft.one([*draft.everything(), "/nosuch", "/no/such"])}


@draws(3)
def open_link(draft: Draft) -> dict[str, Any] | None:
    return {"path": draft.one(draft.links)} if draft.links else None


draws_like(3, "get_link", contains)


draws_like(2, "get_class", contains)


@draws(1)
def visit(draft: Draft) -> dict[str, Any]:
    return {"path": "/"}  # from other groups h5pyd tells the names from the root, and the group's own


@draws(3)
def refer(draft: Draft) -> dict[str, Any]:
    path, targets = draft.name(), [draft.object() for _ in range(int(draft.rng.integers(1, 4)))]
    draft.references.append(path)
    return {"path": path, "targets": targets}


@draws(3)
def follow(draft: Draft) -> dict[str, Any] | None:
    return {"path": draft.one(draft.references)} if draft.references else None


@draws(2)
def refer_to_regions(draft: Draft) -> dict[str, Any] | None:
    target = draft.dataset(NUMERIC)
    if target is None or not draft.datasets[target].shape:
        return None
    path = draft.name()
    draft.regions[path] = target
    indices = [draw_index(draft.rng, draft.datasets[target].shape)[0] for _ in range(2)]
    return {"path": path, "target": target, "indices": indices}


@draws(2)
def follow_regions(draft: Draft) -> dict[str, Any] | None:
    if not draft.regions:
        return None
    path = draft.one(draft.regions)
    return {"path": path, "target": draft.regions[path]}


@draws(2)
def commit_type(draft: Draft) -> dict[str, Any]:
    path, type = draft.name(), str(draft.one(TYPES))
    draft.types[path] = type
    return {"path": path, "type": type}


@draws(3)
def flush(draft: Draft) -> dict[str, Any]:
    return {}


draws_like(2, "look", flush)
