"""Names of dimensions, as netCDF-4 and HDF5's dimension scales have them in attributes of datasets.

A dimension is named by its scale (`DIMENSION_LIST`), a scale by its link; a scale of several dimensions refers to
others by number (`_Netcdf4Coordinates`). A dimension without a scale is a data frame's, or `<dataset>_dim_<number>`.
https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html

Data frames of AnnData's files as xarray has them: the columns of a frame, and arrays of its rows, share a dimension.

The dimension has the frame's name, and the frame's index is its coordinate. Where an array has it twice, as those of
obsp do, the second one is called `obs_2`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.indexing.frame_labels import frames_of
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import CATEGORIES, NULLABLE, ElementReader
from hsparse.client.types.hdf5_type import shape_of
from hsparse.model.attribute import DIMENSION_ONLY


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


class NetcdfDimensions:
    """The dimensions of a domain, whose `records` are those of all objects, by path (`Group.records`)."""

    def __init__(self, records: Mapping[str, Json], frames: FrameDimensions) -> None:
        """`frames` are what name dimensions that have no scale."""
        self._frames = frames
        self._names: dict[str, str] = {}
        self._by_number: dict[int, str] = {}
        for path, record in records.items():
            name = path.rpartition("/")[2]
            self._names.setdefault(record["id"], name)
            number = _value(record, "_Netcdf4Dimid")
            if isinstance(number, int) and is_scale(record):
                self._by_number[number] = name

    def names(self, path: str, record: Json) -> tuple[str, ...]:
        """Return the names of a dataset's dimensions, each another one."""
        own, extent = path.rpartition("/")[2], shape_of(record["shape"]) or ()
        rank = len(extent)
        found: list[str | None] = [None] * rank
        numbers = _value(record, "_Netcdf4Coordinates")
        if is_scale(record) and rank == 1:
            found = [own]
        elif is_scale(record) and isinstance(numbers, list) and len(numbers) == rank:
            found = [self._by_number.get(number) for number in numbers]
        else:
            scales = _value(record, "DIMENSION_LIST")
            if isinstance(scales, list) and len(scales) == rank:
                found = [self._scale(one) for one in scales]
        names: list[str] = []
        for dim, (scale, frame) in enumerate(zip(found, self._frames.of(path, extent), strict=True)):
            name = scale or self._frame_name(frame, names)
            is_free = name is not None and name not in names and (rank == 1 or scale or name != own)
            names.append(name if name is not None and is_free else f"{own}_dim_{dim}")
        return tuple(names)

    def _frame_name(self, frame: str | None, taken: list[str]) -> str | None:
        name = None if frame is None else self._frames.name(frame)
        return f"{name}_2" if name in taken else name

    def _scale(self, references: Any) -> str | None:
        """Return the name of the last scale of a dimension, as netCDF has it; references are `datasets/d-...`."""
        if not isinstance(references, list) or not references:
            return None
        return self._names.get(str(references[-1]).rpartition("/")[2])


def is_scale(record: Json) -> bool:
    """Say whether a dataset is a dimension scale."""
    return _text(record, "CLASS") == "DIMENSION_SCALE"


def is_only_dimension(record: Json) -> bool:
    """Say whether a scale has a length and no values."""
    return is_scale(record) and _text(record, "NAME").startswith(DIMENSION_ONLY)


def _value(record: Json, name: str) -> Any:
    value = record.get("attributes", {}).get(name, {}).get("value")
    return value[0] if name == "_Netcdf4Dimid" and isinstance(value, list) and value else value


def _text(record: Json, name: str) -> str:
    value = _value(record, name)
    return value if isinstance(value, str) else ""
