"""Data frames of AnnData's files as xarray has them: the columns of a frame, and arrays of its rows, share a dimension.

The dimension has the frame's name, and the frame's index is its coordinate. Where an array has it twice, as those of
obsp do, the second one is called `obs_2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.indexing.frame_labels import frames_of
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import CATEGORIES, NULLABLE, ElementReader


class FrameDimensions:
    """The data frames of a tree: which of them the dimensions of an array belong to."""

    def __init__(self, tree: DomainTree) -> None:
        self._tree = tree
        self._reader = ElementReader(tree)

    def is_frame(self, path: str) -> bool:
        tree = self._tree
        return (
            path in tree
            and tree.encoding(path) == "dataframe"
            and "_index" in tree.record(path)["attributes"]
            and tree.index_path(path) in tree
        )

    def columns(self, path: str) -> list[str]:
        """Return the names of the columns of a frame, in their order."""
        return self._reader.columns(path)

    def index(self, path: str) -> str:
        """Return the path of the dataset that has the index of a frame."""
        return self._tree.index_path(path)

    def of(self, path: str, extent: Sequence[int]) -> list[str | None]:
        """Return the frame that each dimension of an array or a column at a path belongs to."""
        above = path.rpartition("/")[0]
        frames = (self._rows_of(above),) if self.is_frame(above) else self._around(path)
        known = [
            frame if self._tree.frame_length(frame) == length else None
            for frame, length in zip(frames, extent, strict=False)
        ]
        return [*known, *[None] * (len(extent) - len(known))]

    def name(self, frame: str) -> str:
        """Return the name of a frame's dimension: its own one, but not obs or var of something else than an AnnData.

        Those of a group go for the groups below it, too, so that `raw/var`, which has another length, is `raw_var`.
        """
        above, _, own = frame.rpartition("/")
        beside = [f"{above}/{one}".strip("/") for one in ("obs", "var")]
        is_outer = own not in ("obs", "var") or all(map(self.is_frame, beside))
        return own if is_outer else frame.replace("/", "_")

    def _rows_of(self, frame: str) -> str:
        """Return the frame whose index the rows of a frame have: of one in obsm that is obs."""
        around = self._around(frame)
        lengths = [self._tree.frame_length(one) for one in (frame, *around[:1])]
        return around[0] if around and lengths[0] == lengths[1] else frame

    def _around(self, path: str) -> tuple[str, ...]:
        """Return the frames of the dimensions of an array of an AnnData, which may be in a group."""
        parts = path.split("/")
        for count in range(len(parts)):
            names = frames_of("/".join(parts[count:]))
            frames = tuple("/".join([*parts[:count], name]) for name in names)
            if frames and all(map(self.is_frame, frames)):
                return frames
        return ()


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """A column of a frame that is not one dataset of values: codes and categories, or values and a mask."""

    values: str
    """The path of the values or codes."""
    mask: str | None = None
    categories: str | None = None

    @classmethod
    def at(cls, tree: DomainTree, path: str) -> GroupColumn | None:
        """Return the column at a path; None for a dataset of values, or for what is no column."""
        encoding = tree.encoding(path)
        if encoding == "categorical":
            return cls(f"{path}/codes", categories=f"{path}/{CATEGORIES}")
        if encoding in NULLABLE:
            return cls(f"{path}/values", mask=f"{path}/mask")
        if tree.is_dataset(path) and CATEGORIES in tree.record(path).get("attributes", {}):
            return cls(path, categories=tree.referred(path, CATEGORIES))
        return None


def type_with_missing(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of values of which some are NaN, as xarray has it: integers become floats."""
    return np.result_type(dtype, np.float32) if dtype.kind in "iuf" else np.dtype(object)


def decoded(codes: NDArray[Any], categories: NDArray[Any]) -> NDArray[Any]:
    """Return the categories of codes, NaN for -1."""
    table = np.append(categories.astype(type_with_missing(categories.dtype)), np.nan)
    found: NDArray[Any] = table[codes]
    return found
