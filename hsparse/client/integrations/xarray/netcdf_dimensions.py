"""Names of dimensions, which netCDF-4 and HDF5's dimension scales store in attributes of datasets.

A scale (`DIMENSION_LIST`) gives a dimension the name of its own link; a scale with several dimensions refers to their
scales by number (`_Netcdf4Coordinates`). A dimension without a scale is named by a data frame, or
`<dataset>_dim_<number>`. https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html

In AnnData's files, the columns of a data frame, and the arrays with its rows, share a dimension. The dimension has the
frame's name, and the frame's index is its coordinate. If an array has the dimension twice, as in obsp, the second one
is called `obs_2`.
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

UNLIMITED = (0, "H5S_UNLIMITED")


class FrameDimensions:
    """The data frames of a tree, and the dimensions of arrays that belong to them."""

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
        """Return, for each dimension of the array or column at a path, its frame's path, or None without a frame."""
        above = path.rpartition("/")[0]
        frames = (self._rows_of(above),) if self.is_frame(above) else self._around(path)
        known = [
            frame if self._tree.frame_length(frame) == length else None
            for frame, length in zip(frames, extent, strict=False)
        ]
        return [*known, *[None] * (len(extent) - len(known))]

    def name(self, frame: str) -> str:
        """Return the name of a frame's dimension: the frame's name, or its path for an obs or var without the other.

        Arrays in the groups of an AnnData share its obs and var; `raw/var`, whose length differs, is called `raw_var`.
        """
        above, _, own = frame.rpartition("/")
        beside = [f"{above}/{one}".strip("/") for one in ("obs", "var")]
        is_outer = own not in ("obs", "var") or all(map(self.is_frame, beside))
        return own if is_outer else frame.replace("/", "_")

    def _rows_of(self, frame: str) -> str:
        """Return the frame whose index the rows of a frame have: obs for a frame in obsm, else the frame itself."""
        around = self._around(frame)
        lengths = [self._tree.frame_length(one) for one in (frame, *around[:1])]
        return around[0] if around and lengths[0] == lengths[1] else frame

    def _around(self, path: str) -> tuple[str, ...]:
        """Return the data frame of each dimension of an AnnData's array, or () for another object."""
        parts = path.split("/")
        for count in range(len(parts)):
            names = frames_of("/".join(parts[count:]))
            frames = tuple("/".join([*parts[:count], name]) for name in names)
            if frames and all(map(self.is_frame, frames)):
                return frames
        return ()


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """A column of a frame that is not a single dataset, but codes and categories, or values and a mask."""

    values: str
    """The path of the values or codes."""
    mask: str | None = None
    categories: str | None = None

    @classmethod
    def at(cls, tree: DomainTree, path: str) -> GroupColumn | None:
        """Return the column at a path, or None for a dataset of values or for an object that is not a column."""
        encoding = tree.encoding(path)
        if encoding == "categorical":
            return cls(f"{path}/codes", categories=f"{path}/{CATEGORIES}")
        if encoding in NULLABLE:
            return cls(f"{path}/values", mask=f"{path}/mask")
        if tree.is_dataset(path) and CATEGORIES in tree.record(path).get("attributes", {}):
            return cls(path, categories=tree.referred(path, CATEGORIES))
        return None


def type_with_missing(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that xarray uses for values with NaN: floats for integers, objects for other non-floats."""
    return np.result_type(dtype, np.float32) if dtype.kind in "iuf" else np.dtype(object)


def decoded(codes: NDArray[Any], categories: NDArray[Any]) -> NDArray[Any]:
    """Return an array of the category of each code; the code -1 becomes NaN."""
    table = np.append(categories.astype(type_with_missing(categories.dtype)), np.nan)
    found: NDArray[Any] = table[codes]
    return found


NO_COORDINATE = "_nc4_non_coord_"
"""netCDF-4's prefix of a variable whose name is that of a dimension which the variable does not have."""


class NetcdfDimensions:
    """The dimensions of a domain; `records` are the records of all objects, by path (`Group.records`)."""

    def __init__(self, records: Mapping[str, Json], frames: FrameDimensions) -> None:
        """`frames` name the dimensions that have no scale."""
        self._frames = frames
        self._names: dict[str, str] = {}
        self._by_number: dict[int, str] = {}
        for path, record in records.items():
            self._names.setdefault(record["id"], path.rpartition("/")[2])
            number = _value(record, "_Netcdf4Dimid")
            if isinstance(number, int) and is_scale(record):
                self._by_number[number] = record["id"]
        self._lengths: dict[str, int] = {}
        for record in records.values():
            extent = shape_of(record["shape"]) or () if "shape" in record else ()
            for scale, length in zip(self._scales(record, len(extent)), extent, strict=True):
                if scale is not None:
                    self._lengths[scale] = max(length, self._lengths.get(scale, 0))

    def names(self, path: str, record: Json) -> tuple[str, ...]:
        """Return the names of a dataset's dimensions; only dimensions with the same scale have the same name."""
        own, extent = netcdf_name(path), shape_of(record["shape"]) or ()
        rank = len(extent)
        names: list[str] = []
        frames = self._frames.of(path, extent)
        for dim, (scale, frame) in enumerate(zip(self._scales(record, rank), frames, strict=True)):
            name = None if scale is None else self._names[scale]
            if name is None:
                name = self._frame_name(frame, names)
                if name in names or (rank > 1 and name == own):
                    name = None
            names.append(f"{own}_dim_{dim}" if name is None else name)
        return tuple(names)

    def shape(self, record: Json) -> tuple[int, ...]:
        """Return the shape of a variable; an unlimited dimension is as long as its longest dataset."""
        extent = shape_of(record["shape"]) or ()
        limits = record["shape"].get("maxdims") or extent
        return tuple(
            self._lengths[scale] if scale is not None and limit in UNLIMITED else length
            for scale, length, limit in zip(self._scales(record, len(extent)), extent, limits, strict=True)
        )

    def _scales(self, record: Json, rank: int) -> list[str | None]:
        """Return the id of the scale of each dimension of a dataset, or None for a dimension without a scale."""
        found: list[str | None] = [None] * rank
        numbers, scales = _value(record, "_Netcdf4Coordinates"), _value(record, "DIMENSION_LIST")
        if is_scale(record) and rank == 1:
            found = [record["id"]]
        elif is_scale(record) and isinstance(numbers, list) and len(numbers) == rank:
            found = [self._by_number.get(number) for number in numbers]
        elif isinstance(scales, list) and len(scales) == rank:
            found = [self._scale(one) for one in scales]
        return found

    def _frame_name(self, frame: str | None, taken: list[str]) -> str | None:
        name = None if frame is None else self._frames.name(frame)
        return f"{name}_2" if name in taken else name

    def _scale(self, references: Any) -> str | None:
        """Return the id of a dimension's last scale, which netCDF uses; references are `datasets/d-...`."""
        if not isinstance(references, list) or not references:
            return None
        id = str(references[-1]).rpartition("/")[2]
        return id if id in self._names else None


def netcdf_name(path: str) -> str:
    """Return the name of the variable at a path."""
    return path.rpartition("/")[2].removeprefix(NO_COORDINATE)


def is_scale(record: Json) -> bool:
    """Return whether a dataset is a dimension scale."""
    return _text(record, "CLASS") == "DIMENSION_SCALE"


def is_only_dimension(record: Json) -> bool:
    """Return whether a dataset is a scale that has a length but no values."""
    return is_scale(record) and _text(record, "NAME").startswith(DIMENSION_ONLY)


def _value(record: Json, name: str) -> Any:
    value = record.get("attributes", {}).get(name, {}).get("value")
    return value[0] if name == "_Netcdf4Dimid" and isinstance(value, list) and value else value


def _text(record: Json, name: str) -> str:
    value = _value(record, name)
    return value if isinstance(value, str) else ""
