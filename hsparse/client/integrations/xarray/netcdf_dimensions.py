"""Names of dimensions, as netCDF-4 and HDF5's dimension scales have them in attributes of datasets.

A dimension is named by its scale (`DIMENSION_LIST`), a scale by its link; a scale of several dimensions refers to
others by number (`_Netcdf4Coordinates`). A dimension without a scale is a data frame's, or `<dataset>_dim_<number>`.
https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hsparse.client.connection import Json
from hsparse.client.integrations.xarray.frame_dimensions import FrameDimensions
from hsparse.client.types.hdf5_type import shape_of
from hsparse.model.attribute import DIMENSION_ONLY


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
