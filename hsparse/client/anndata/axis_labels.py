"""The labels of the dimensions of an AnnData's arrays: the names of observations and of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.anndata.domain_tree import DomainTree
from hsparse.client.anndata.element_reader import ElementReader
from hsparse.client.errors import MissingKey

FRAMES: dict[str, tuple[str | None, ...]] = {
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
"""The data frame whose index is that of each dimension, by the part of the AnnData."""


def frames_of(path: str) -> tuple[str | None, ...]:
    """Return the data frame of each dimension of the array at a path; none for what is no part of an AnnData."""
    parts = path.strip("/").split("/")
    if parts[0] == "raw" and len(parts) > 1:
        return FRAMES.get("/".join(parts[:2]), ())
    is_whole = parts[0] in ("X", "raw.X")
    return FRAMES.get(parts[0], ()) if len(parts) == (1 if is_whole else 2) else ()


class AxisLabels:
    """The indices of an AnnData's frames, each read when it is first needed, by one request."""

    def __init__(self, tree: Callable[[], DomainTree]) -> None:
        """`tree` is called when labels are needed."""
        self._tree = tree
        self._indices: dict[str, NDArray[Any]] = {}

    def of(self, path: str) -> Callable[[int], NDArray[Any] | None]:
        """Return the function that returns the labels along a dimension of the array at a path, None without any."""
        frames = frames_of(path)

        def labels(dim: int) -> NDArray[Any] | None:
            frame = frames[dim] if dim < len(frames) else None
            return None if frame is None else self.index(frame)

        return labels

    def index(self, frame: str) -> NDArray[Any] | None:
        """Return the index of a frame, (n,) objects that are `str`; None if there is no such frame."""
        if frame not in self._indices:
            tree = self._tree()
            if frame not in tree:
                return None
            reader = ElementReader(tree)
            reader.want_frame(frame, [])
            reader.fetch()
            self._indices[frame] = reader.index(frame)
        return self._indices[frame]


def places_of(wanted: list[str], index: NDArray[Any], what: str) -> NDArray[np.intp]:
    """Return the places of labels in an index, the first of each; `MissingKey` names one that is not there."""
    first: dict[Any, int] = {}
    for place, label in enumerate(index.tolist()):
        first.setdefault(label, place)
    try:
        return np.array([first[label] for label in wanted], np.intp)
    except KeyError as error:
        raise MissingKey(f"{error.args[0]!r} is not among the names of {what}.") from None
