"""The labels along the dimensions of the arrays of an AnnData: the names of its observations and variables."""

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
"""These modules are imported at their first use, because files without an AnnData do not need the modules."""
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
"""Maps each part of an AnnData to the data frames whose indices are the labels of its dimensions."""


def frames_of(path: str) -> tuple[str, ...]:
    """Return the data frame of each dimension of the array at a path, or () if the array is not part of an AnnData."""
    parts = path.strip("/").split("/")
    if parts[0] == "raw" and len(parts) > 1:
        return FRAMES.get("/".join(parts[:2]), ())
    is_whole = parts[0] in ("X", "raw.X")
    return FRAMES.get(parts[0], ()) if len(parts) == (1 if is_whole else 2) else ()


class FrameLabels:
    """The trees of objects of a domain, and the indices of the data frames of its AnnData; the first use fetches each.

    A pickle contains no trees and no indices, so that arrays are cheap to send to other processes.
    """

    def __init__(self, connection: Connection, root: str) -> None:
        """`connection` is a connection to the domain, and `root` is the id of its root group."""
        self._connection = connection
        self._root = root
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"_connection": self._connection, "_root": self._root}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forget()

    def forget(self) -> None:
        """Drop the cached trees and indices; the next use fetches them again, with the changes of other clients."""
        self._trees: dict[str, DomainTree] = {}
        self._indices: dict[str, NDArray[Any]] = {}

    def tree(self, path: str = "/") -> DomainTree:
        """Return the tree of the objects below a path; the first call fetches their records, which are then cached."""
        if path not in self._trees:
            group = Group(self._connection, {"id": self._root}, "/")
            self._trees[path] = TREE.load().DomainTree(self._connection, group.records(), path)
        return self._trees[path]

    def __call__(self, path: str) -> ArrayLabels:
        """Return the labels of the array at a path."""
        return ArrayLabels(self, frames_of(path))

    def index(self, frame: str) -> NDArray[Any] | None:
        """Return the index of a data frame, an array of n `str` objects, or None if the data frame does not exist."""
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
    """A function that returns the labels along an axis of an array, or None if the axis has no data frame."""

    labels: FrameLabels
    frames: tuple[str, ...]

    def __call__(self, axis: int) -> NDArray[Any] | None:
        return self.labels.index(self.frames[axis]) if axis < len(self.frames) else None


def places_of(wanted: list[str], index: NDArray[Any], what: str) -> NDArray[np.intp]:
    """Return the positions of labels in an index.

    Raises `MissingKey` if a label is not in the index, and `InvalidValue` if a label is in the index more than once.
    """
    places: dict[Any, int] = {}
    for place, label in enumerate(index.tolist()):
        places[label] = TWICE if label in places else place
    try:
        found = np.array([places[label] for label in wanted], np.intp)
    except KeyError as error:
        raise MissingKey(f"{what} has no name {error.args[0]!r}: give one of its names.") from None
    if TWICE in found:
        label = wanted[int(np.argmin(found))]
        raise InvalidValue(f"{what} has the name {label!r} more than once: give indices.")
    return found
