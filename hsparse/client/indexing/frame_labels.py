"""The labels along the dimensions of an AnnData's arrays: the names of observations and variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, MissingKey
from hsparse.client.group import Group
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.integrations.anndata.domain_tree import DomainTree

TREE = OptionalModule("hsparse.client.integrations.anndata.domain_tree")
READER = OptionalModule("hsparse.client.integrations.anndata.element_reader")
"""Imported on first use; files without AnnData do not need them."""
TWICE = -1
FRAMES: dict[str, tuple[str, ...]] = {
    "X": ("obs", "var"),
    "layers": ("obs", "var"),
    "obsm": ("obs",),
    "varm": ("var",),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
    "raw/X": ("obs", "raw/var"),
    "raw/varm": ("raw/var",),
    "raw.X": ("obs", "raw.var"),
}
"""The data frames whose indices label the dimensions of each part of an AnnData."""


def frames_of(path: str) -> tuple[str, ...]:
    """Return the data frame of each dimension of the array at a path; empty for paths outside an AnnData."""
    parts = path.strip("/").split("/")
    if parts[0] == "raw" and len(parts) > 1:
        return FRAMES.get("/".join(parts[:2]), ())
    is_whole = parts[0] in ("X", "raw.X")
    return FRAMES.get(parts[0], ()) if len(parts) == (1 if is_whole else 2) else ()


class FrameLabels:
    """The object trees of a domain, and the indices of its AnnData's data frames, each fetched on first use.

    A pickle contains neither, so that arrays are cheap to send to other processes.
    """

    def __init__(self, connection: Connection, root: str) -> None:
        """Take a connection and the id of the root group."""
        self._connection = connection
        self._root = root
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"_connection": self._connection, "_root": self._root}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forget()

    def forget(self) -> None:
        """Drop the cached trees and indices, so that changes by others are seen."""
        self._trees: dict[str, DomainTree] = {}
        self._indices: dict[str, NDArray[Any]] = {}

    def tree(self, path: str = "/") -> DomainTree:
        """Return the records of the objects below a path; they are requested by the first call and then cached."""
        if path not in self._trees:
            group = Group(self._connection, {"id": self._root}, "/")
            self._trees[path] = TREE.load().DomainTree(self._connection, group.records(), path)
        return self._trees[path]

    def __call__(self, path: str) -> ArrayLabels:
        """Return the labels of the array at a path."""
        return ArrayLabels(self, frames_of(path))

    def index(self, frame: str) -> NDArray[Any] | None:
        """Return the index of a frame, (n,) objects of type `str`, or None if the frame does not exist."""
        if frame not in self._indices:
            tree = self.tree()
            if frame not in tree:
                return None
            reader = READER.load().ElementReader(tree)
            reader.want_frame(frame, [])
            reader.fetch()
            self._indices[frame] = reader.index(frame)
        return self._indices[frame]


@dataclass(frozen=True, slots=True)
class ArrayLabels:
    """The labels along each dimension of an array: the index of the dimension's data frame, or None without a frame."""

    labels: FrameLabels
    frames: tuple[str, ...]

    def __call__(self, axis: int) -> NDArray[Any] | None:
        return self.labels.index(self.frames[axis]) if axis < len(self.frames) else None


def places_of(wanted: list[str], index: NDArray[Any], what: str) -> NDArray[np.intp]:
    """Return the positions of labels in an index.

    Raises `MissingKey` for a label that is missing, and `InvalidValue` for one that occurs twice.
    """
    places: dict[Any, int] = {}
    for place, label in enumerate(index.tolist()):
        places[label] = TWICE if label in places else place
    try:
        found = np.array([places[label] for label in wanted], np.intp)
    except KeyError as error:
        raise MissingKey(f"{error.args[0]!r} is not among the names of {what}.") from None
    if TWICE in found:
        label = wanted[int(np.argmin(found))]
        raise InvalidValue(f"{label!r} is more than once among the names of {what}: give indices.")
    return found
