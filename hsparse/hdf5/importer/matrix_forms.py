"""Find groups and datasets of an HDF5 file that become sparse datasets, and the datasets with their elements.

These are groups of AnnData (`encoding-type`, or the older `h5sparse_format`) and Binsparse, datasets with a defined
set, detector frames as columns of pixels (pyFAI's sparsify-Bragg and ImageD11), and events of NeXus.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html, https://graphblas.org/binsparse-specification,
https://www.silx.org/doc/pyFAI, https://imaged11.readthedocs.io,
https://manual.nexusformat.org/classes/base_classes/NXevent_data.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hsparse.errors import Corrupt, HsparseError
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.file_type import names_of_enum
from hsparse.hdf5.format.messages.group_messages import LinkMessage, StoredHardLink
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedAttribute, ParsedDataset, ParsedObject, parse_object
from hsparse.hdf5.format.plan.dataset_plan import BOOLEAN
from hsparse.hdf5.format.plan.domain_plan import DEFINED, REFERENCE_TYPE
from hsparse.hdf5.format.plan.matrix_encoding import (
    ANNDATA_KINDS,
    BINSPARSE,
    BINSPARSE_KINDS,
    ENCODING_TYPE,
    OLD_FORMAT,
    OLD_SHAPE,
)
from hsparse.hdf5.importer.source import InputFile
from hsparse.model.dataspace import dims_of
from hsparse.model.element import element_of
from hsparse.model.json_values import to_json


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """A matrix of `shape`; `kind` is csr, csc, coo or events. The other fields are addresses of datasets.

    `indices` has the columns (csr), rows (csc), or both (coo) of the elements, `pointers` the start of each row or
    column. With `iso`, all elements have the same value. Events are a csr matrix, pulses x pixels, whose values are
    event counts; the `values` and `indices` of events are the same dataset.
    """

    kind: str
    shape: tuple[int, int]
    values: int
    indices: tuple[int, ...]
    pointers: int | None = None
    iso: bool = False
    fill: int | None = None


def find_matrix(source: InputFile, file: Hdf5File, stored: ParsedObject) -> MatrixForm | None:
    """Return the form of a group that is a matrix, or None if the group is no matrix or has an unknown form."""
    attributes = {one.name: one for one in stored.attributes}
    members = {
        link.name: link.target.address for link in stored.links if isinstance(link.target, StoredHardLink)
    }

    def value(name: str) -> Any:
        return _value(source, file, attributes[name]) if name in attributes else None

    try:
        if BINSPARSE in attributes:
            return _binsparse(json.loads(value(BINSPARSE)), members)
        kind = ANNDATA_KINDS.get(value(ENCODING_TYPE) or value(OLD_FORMAT))
        shape = value("shape") or value(OLD_SHAPE)
        if kind is None:
            return None
        return MatrixForm(kind, _shape(shape), members["data"], (members["indices"],), members["indptr"])
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class FramesForm:
    """Detector frames stored as columns of pixels; `shape` is (frames, rows, columns), or (rows, columns) of one frame.

    The other fields are addresses of datasets. `indices` has each pixel's number in its frame, or its row and column.
    `pointers` has the first pixel of each frame, or `counts` has each frame's number of pixels.
    """

    shape: tuple[int, ...]
    values: int
    indices: tuple[int, ...]
    pointers: int | None = None
    counts: int | None = None

    @property
    def places(self) -> set[int]:
        """The addresses of the datasets with the coordinates of the values."""
        return {one for one in (*self.indices, self.pointers, self.counts) if one is not None}


EVENTS = "events"
COUNTS = "counts"
"""The name of the sparse dataset that is added to a group of event columns."""
EVENT_COLUMNS = ("event_id", "event_index", "event_time_zero")


def counts_name(links: Iterable[LinkMessage]) -> str:
    """Return a name for the sparse dataset of events; no link in `links` has this name."""
    names, name = {link.name for link in links}, COUNTS
    while name in names:
        name += "_"
    return name


def find_events(source: InputFile, file: Hdf5File, stored: ParsedObject) -> MatrixForm | None:
    """Return the form of the events in a NeXus group, with the shape (pulses, 0), or None if it has no events.

    Raises `Corrupt` if a column is missing, or is not a one-dimensional dataset of numbers.
    """
    classes = [_value(source, file, one) for one in stored.attributes if one.name == "NX_class"]
    if classes not in (["NXevent_data"], [["NXevent_data"]]):
        return None
    names = {
        link.name: link.target.address for link in stored.links if isinstance(link.target, StoredHardLink)
    }
    if EVENT_COLUMNS[0] not in {link.name for link in stored.links}:
        return None
    dims = []
    for name in EVENT_COLUMNS:
        found = _dims(source, file, names[name]) if name in names else None
        if found is None or len(found) != 1:
            raise Corrupt(f"The group has no column of numbers {name}.")
        dims.append(found[0])
    if not all(dims):
        return None
    ids, index = (names[name] for name in EVENT_COLUMNS[:2])
    return MatrixForm(EVENTS, (dims[2], 0), ids, (ids,), index)


PYFAI = ("frame_ptr", "index", "intensity", "mask")
SIDES = ("shape0", "shape1")
"""The attributes of ImageD11's groups that have the number of rows and of columns of a frame."""


def find_frames(source: InputFile, file: Hdf5File, stored: ParsedObject) -> list[FramesForm]:
    """Return a form for each column of pixel values in a group of frames, or [] for other groups."""
    names = {
        link.name: link.target.address for link in stored.links if isinstance(link.target, StoredHardLink)
    }
    sides = {one.name: one for one in stored.attributes if one.name in (*SIDES, "nframes")}
    is_pyfai = {*PYFAI} <= {*names}
    if not is_pyfai and not ({*SIDES} <= {*sides} and {"row", "col"} <= {*names}):
        return []
    columns = {name: _dims(source, file, address) for name, address in names.items()}
    count = columns["index" if is_pyfai else "row"]
    if count is None or len(count) != 1:
        return []
    if is_pyfai:
        frames, sizes = columns["frame_ptr"], columns["mask"]
        if not frames or not sizes or len(frames) != 1 or len(sizes) != 2 or columns["intensity"] != count:
            return []
        pointers, index, intensity, _ = (names[name] for name in PYFAI)
        shape = (frames[0] - 1, *sizes)
        return [FramesForm(shape, intensity, (index,), pointers)] if min(shape) > 0 else []
    numbers = {name: _value(source, file, one) for name, one in sides.items()}
    given = tuple(numbers[name] for name in ("nframes", *SIDES) if name in numbers)
    if not all(type(one) is int and one > 0 for one in given):
        return []
    counts = names.get("nnz") if len(given) == 3 else None
    if len(given) == 3 and counts is None:
        return []
    is_sure = given[:-2] != count  # otherwise a column of that length may have one value per frame
    return [
        FramesForm(given, names[name], (names["row"], names["col"]), None, counts)
        for name, dims in columns.items()
        if dims == count and name not in ("row", "col", "nnz") and (is_sure or name == "intensity")
    ]


def _dims(source: InputFile, file: Hdf5File, address: int) -> tuple[int, ...] | None:
    """Return the extent of a numeric dataset, or None for other objects."""
    try:
        found = source.run(parse_object(file, address)).dataset
    except HsparseError:
        return None
    is_numbers = found is not None and found.type.item["class"] in ("H5T_INTEGER", "H5T_FLOAT")
    return dims_of(found.shape) if found is not None and is_numbers else None


@dataclass(frozen=True, slots=True)
class DefinedSet:
    """The defined set of a dataset: a dataset of booleans at `address`, which `attribute` refers to."""

    attribute: str
    address: int


def find_defined_set(source: InputFile, file: Hdf5File, stored: ParsedObject) -> DefinedSet | None:
    """Return the defined set of a dataset that was exported from a sparse dataset, or None for other datasets.

    An attribute `DEFINED_SET` is ignored unless it refers to a boolean dataset of the same extent and chunks.
    """
    if stored.dataset is None or not isinstance(stored.dataset.layout, ChunkedLayout):
        return None
    named = [one for one in stored.attributes if one.name.rstrip("_") == DEFINED]
    for one in sorted(named, key=lambda one: len(one.name), reverse=True):
        if one.type.item == REFERENCE_TYPE and dims_of(one.shape) == ():
            found: list[int] = []
            _value(source, file, one, found.append)
            if found and _is_defined_set(source, file, stored.dataset, found[0]):
                return DefinedSet(one.name, found[0])
    return None


def _is_defined_set(source: InputFile, file: Hdf5File, values: ParsedDataset, address: int) -> bool:
    try:
        beside = source.run(parse_object(file, address))
    except HsparseError:
        return False
    one = beside.dataset
    if one is None or beside.attributes or not isinstance(one.layout, ChunkedLayout):
        return False
    assert isinstance(values.layout, ChunkedLayout)
    same = dims_of(one.shape) == dims_of(values.shape) and one.layout.dims == values.layout.dims
    is_enum = one.type.item["class"] == BOOLEAN["class"] and one.type.size == 1
    return same and is_enum and names_of_enum(one.type.item) == names_of_enum(BOOLEAN)


def _binsparse(described: Any, members: dict[str, int]) -> MatrixForm | None:
    described = described.get(BINSPARSE, described)
    kind = BINSPARSE_KINDS.get(described["format"])
    types = described["data_types"]
    name = types["values"]
    iso = name.startswith("iso[")
    if kind is None or "complex" in name or described.get("structure", "general") != "general":
        return None
    shape, values = _shape(described["shape"]), members["values"]
    fill = members["fill_value"] if described.get("fill") is True else None
    if kind == "coo":
        return MatrixForm(kind, shape, values, (members["indices_0"], members["indices_1"]), None, iso, fill)
    return MatrixForm(kind, shape, values, (members["indices_1"],), members["pointers_to_1"], iso, fill)


def _shape(value: Any) -> tuple[int, int]:
    rows, columns = map(int, value)
    if min(rows, columns) < 1:
        raise ValueError("a matrix without elements stays what it is")
    return rows, columns


def _value(
    source: InputFile, file: Hdf5File, one: ParsedAttribute, find: Callable[[int], None] = lambda _: None
) -> Any:
    """Return the value of an attribute, or None if it is unreadable; call `find` with each address it refers to."""
    try:
        reads = parse_elements(file, one.type, one.data, dims_of(one.shape) or (), find)
        return to_json(source.run(reads), element_of(one.type.item))
    except HsparseError:
        return None  # an unreadable attribute describes no matrix
