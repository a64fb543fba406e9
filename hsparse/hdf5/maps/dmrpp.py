"""DMR++: a domain as a DAP4 dataset (OPeNDAP), with the locations of the chunks of each variable.

The document is DAP4's (namespace `http://xml.opendap.org/ns/DAP/4.0#`, version 4.0) with `dmrpp:chunks` in the
variables (`http://xml.opendap.org/dap/dmrpp/1.0.0#`). Variables are datasets of atomic types with filters of plain
HDF5. The attribute `LEFT_OUT` of a group names the objects that the document cannot describe.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from html import escape
from math import isfinite, isnan
from operator import sub
from typing import Any

import numpy as np

from hsparse.errors import BadRequest, Conflict, HsparseError, Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import BY_ID
from hsparse.format.selections.signed_extent import corner_of
from hsparse.hdf5.files.file_plans import FileAddresses
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm
from hsparse.hdf5.maps.kerchunk import (
    check_referable,
    is_only_dimension,
    is_scale,
    plain_attributes,
    scales_of,
)
from hsparse.model.attribute_json import attribute_value_json
from hsparse.model.dataspace import dims_of
from hsparse.model.datatype import parse_type
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import collection_of
from hsparse.sn.chunks.mapped_objects import MappedObject, datasets_of_group, path_components
from hsparse.sn.chunks.stored_chunk_read import REPORTED_KINDS
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import hard_links, left_out_links
from hsparse.sn.records.stored_chunks import ChunkPages, Json, defined_chunks, object_url, refuse_filter_mask
from hsparse.wire.message import Record

DAP_TYPES = {"i": "Int", "u": "UInt", "f": "Float"}
SIZES = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8)}
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that an XML 1.0 document cannot contain."""
SPACES = {ord("\t"): "&#9;", ord("\n"): "&#10;", ord("\r"): "&#13;"}
"""Escapes of the white space that XML readers normalize in attributes."""


@dataclass(frozen=True, slots=True)
class DapVariable:
    """A variable: its DAP4 type, and attributes of `dmrpp:chunks`. `compression` and `level` may be empty."""

    type: str
    byte_order: str
    fill: str
    compression: str
    level: str

    @classmethod
    def of(cls, dtype: np.dtype[Any], fill: bytes, pipeline: Sequence[Filter]) -> DapVariable:
        """Return the variable of a dense dataset; `fill` has the bytes of one element, empty for zero.

        Raises `Unsupported` if DAP4 lacks the type, or DMR++ lacks the pipeline.
        """
        value = np.frombuffer(fill, dtype)[0].item() if fill and dtype.kind in "biuf" else 0
        return cls(
            dap_type(dtype),
            "BE" if dtype.str[0] == ">" else "LE",
            repr(value) if isinstance(value, float) else str(int(value)),
            *_compression(pipeline, dtype.itemsize),
        )


def dap_type(dtype: np.dtype[Any]) -> str:
    """Return DAP4's name of a dtype; raises `Unsupported` if it has none."""
    if dtype.kind == "b":
        return "Int8"
    if dtype.itemsize not in SIZES.get(dtype.kind, ()):
        raise Unsupported(f"DMR++ cannot describe elements of type {dtype}.")
    return f"{DAP_TYPES[dtype.kind]}{8 * dtype.itemsize}"


def dap_attribute(stored: Json) -> tuple[str, list[str]]:
    """Return the DAP4 type and the flattened values, as text, of a stored attribute of a plain type.

    Raises `Unsupported` if DAP4 lacks the type.
    """
    datatype = parse_type(stored["type"])
    values = list(_flat(attribute_value_json(stored)))
    if datatype.item["class"] == "H5T_STRING":
        return "String", [str(value) for value in values]
    kind = dap_type(datatype.dtype)
    return kind, [_number(value) if kind.startswith("Float") else str(int(value)) for value in values]


def is_xml(text: str) -> bool:
    """Return whether an XML document can contain a text."""
    return NOT_XML.search(text) is None


def xml_text(text: str) -> str:
    """Escape text for XML content or an XML attribute; raises `Unsupported` for characters that XML cannot contain."""
    if not is_xml(text):
        raise Unsupported(f"XML cannot contain the text {text[:80]!r}.")
    return escape(text).translate(SPACES)


def _compression(pipeline: Sequence[Filter], size: int) -> tuple[str, str]:
    """Return DMR++'s names of filters, and the level of the filter that has one; raises `Unsupported`."""
    ids = [filter.id for filter in pipeline]
    names = [BY_ID[id].dmrpp for id in ids if id in BY_ID]
    if len(names) < len(ids) or not all(names) or len(set(ids)) < len(ids):
        raise Unsupported(f"DMR++ cannot describe the HDF5 filters {ids}.")
    levels = [BY_ID[filter.id].dmrpp_level(filter.values, size) for filter in pipeline]
    return " ".join(names), "".join(levels)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _flat(one)
    else:
        yield value


def _number(value: float) -> str:
    """Format a float as in XML Schema."""
    value = float(value)
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "INF" if value > 0 else "-INF"


DMRPP_TYPE = "application/xml"
LEFT_OUT = "hsparse_left_out"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
NAMESPACES = (
    'xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" '
    'dapVersion="4.0" dmrVersion="1.0"'
)
Text = AsyncGenerator[bytes, None]
Dimensions = list[tuple[str, int]]
"""(Path, size) of each dimension of a variable; the path of an anonymous dimension is empty."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """A dimension scale: the path of its group, its name and its size."""

    group: tuple[str, ...]
    name: str
    size: int


class Dmrpp:
    """Writes documents that refer to objects with URLs `base` + key or, with `file`, to the file with URL `base`."""

    def __init__(
        self,
        base: str,
        open_dataset: Callable[[Record], tuple[Dataset, ChunkPages]],
        file: FileAddresses | None,
    ) -> None:
        self._base = base
        self._open = open_dataset
        self._file = file
        self._scales: dict[str, _Scale] = {}

    async def dataset(self, dataset: Dataset) -> Text:
        """Yield the document of one dataset, named by its id; raises `Unsupported` if DMR++ cannot describe it."""
        sizes: Dimensions = [("", size) for size in dataset.extent]
        variable = self._variable(dataset.id, dataset.record, sizes)
        async with aclosing(variable):
            first = await anext(variable)
            yield self._begin(dataset.id) + first
            async for text in variable:
                yield text
        yield b"</Dataset>\n"

    async def domain(self, name: str, owners: Owners, groups: AsyncGenerator[MappedObject, None]) -> Text:
        """Yield the document of a domain; `groups` are the groups that `nested_groups` yields."""
        yield self._begin(name)
        inside: tuple[str, ...] = ()
        async with aclosing(groups):
            async for group in groups:
                if self._file is not None:
                    self._file.check(group.record)
                here = path_components(group.path)
                if not all(map(is_xml, here)):  # the parent group's LEFT_OUT names it
                    await self._pass(group.record, owners)
                    continue
                shared = _common(inside, here)
                yield b"</Group>\n" * (len(inside) - shared)
                yield "".join(f'<Group name="{xml_text(one)}">\n' for one in here[shared:]).encode()
                inside = here
                content = self._group(here, group.record, owners)
                async with aclosing(content):
                    async for text in content:
                        yield text
        if self._file is not None:
            self._file.check_complete()
        yield b"</Group>\n" * len(inside) + b"</Dataset>\n"

    def _begin(self, name: str) -> bytes:
        href = f' dmrpp:href="{xml_text(self._base)}"' if self._file is not None else ""
        return f'{HEAD}<Dataset {NAMESPACES} name="{xml_text(name)}"{href}>\n'.encode()

    # --- groups -------------------------------------------------------------------------------------

    async def _group(self, group: tuple[str, ...], record: Record, owners: Owners) -> Text:
        """Yield the content of a group's element, without nested groups."""
        left_out: list[str] = []
        sizes, declared = await self._dimensions(group, record, owners)
        for name, size in declared.items():
            yield f'<Dimension name="{xml_text(name)}" size="{size}"/>\n'.encode()
        datasets = datasets_of_group(owners, record)
        async with aclosing(datasets):
            async for title, dataset in datasets:
                if self._file is not None:
                    self._file.check(dataset)
                if is_only_dimension(dataset):
                    continue
                try:
                    variable = self._variable(title, dataset, sizes.get(title))
                    first = await anext(variable)
                except HsparseError as error:
                    if error.kind not in REPORTED_KINDS:
                        raise
                    left_out.append(f"{title}: {error.message}")
                    continue
                async with aclosing(variable):
                    yield first
                    async for text in variable:
                        yield text
        attributes, others = _attributes(record)
        yield attributes
        left_out += [f"{title}: {why}" for title, why in left_out_links(record).items()]
        left_out += others + [
            f"{title}: a group whose name XML cannot contain" for title in _unnamed_groups(record)
        ]
        yield _left_out(left_out)

    async def _pass(self, record: Record, owners: Owners) -> None:
        """Check the datasets of a group that is left out against the file's plan."""
        datasets = datasets_of_group(owners, record)
        async with aclosing(datasets):
            async for _, dataset in datasets:
                if self._file is not None:
                    self._file.check(dataset)

    async def _dimensions(
        self, group: tuple[str, ...], record: Record, owners: Owners
    ) -> tuple[dict[str, Dimensions], dict[str, int]]:
        """Return the dimensions of a group's datasets by name, and the sizes of the dimensions that the group declares.

        A group declares the dimensions of its dimension scales. A dimension without a scale is named after its dataset.
        """
        shapes: dict[str, tuple[tuple[int, ...], list[str]]] = {}
        own: dict[str, int] = {}
        datasets = datasets_of_group(owners, record)
        async with aclosing(datasets):
            async for title, dataset in datasets:
                try:
                    self._described(Dataset.of(dataset))
                except (BadRequest, Unsupported):
                    continue  # `_group` reports the error
                dims = dims_of(dataset["shape"]) or ()
                shapes[title] = dims, scales_of(dataset)
                if is_scale(dataset) and _is_plain(title):
                    self._scales.setdefault(dataset["id"], _Scale(group, title, dims[0]))
                    own[title] = dims[0]
        declared = dict(own)
        found: dict[str, Dimensions] = {title: [] for title in shapes}
        for title, (dims, scales) in shapes.items():
            for number, (size, scale) in enumerate(zip(dims, scales, strict=True)):
                path = self._shared(group, scale, size, title if title in own else "")
                name = f"{title}_dim_{number}"
                if not path and _is_plain(*group, title) and declared.setdefault(name, size) == size:
                    path = _path((*group, name))
                found[title].append((path, size))
        return found, declared

    def _shared(self, group: tuple[str, ...], id: str, size: int, own: str) -> str:
        """Return the path of a shared dimension: that of the scale `own` or `id`; empty if neither is usable."""
        if own and _is_plain(*group):
            return _path((*group, own))
        scale = self._scales.get(id)
        if scale is None or scale.size != size or group[: len(scale.group)] != scale.group:
            return ""
        return _path((*scale.group, scale.name)) if _is_plain(*scale.group) else ""

    # --- variables ----------------------------------------------------------------------------------

    async def _variable(self, name: str, record: Record, dims: Dimensions | None) -> Text:
        """Yield a variable; raises `Unsupported`, before the first yield, if DMR++ cannot describe it."""
        dataset, chunks = self._open(record)
        variable = self._described(dataset)
        if dims is None or tuple(size for _, size in dims) != dataset.extent:
            raise Conflict(f"{dataset.id} was changed while the map was made. Ask for the map again.")
        title = xml_text(name)
        if is_file_backed(record):  # only file-backed chunks can have filter masks
            async for row in defined_chunks(chunks):
                refuse_filter_mask(row)
        rows = defined_chunks(chunks)
        async with aclosing(rows):
            first = await anext(rows, None)
            yield self._head(variable, title, dims, record) + _chunks(variable, chunks)
            if first is not None:
                yield self._chunk(first, dataset)
            async for row in rows:
                yield self._chunk(row, dataset)
            yield f"</dmrpp:chunks>\n</{variable.type}>\n".encode()

    @staticmethod
    def _head(variable: DapVariable, title: str, dims: Dimensions, record: Record) -> bytes:
        """Return the start of a variable's element with its dimensions and attributes."""
        text = "".join(
            f'<Dim name="{xml_text(path)}"/>\n' if path else f'<Dim size="{size}"/>\n' for path, size in dims
        )
        attributes, others = _attributes(record)
        return f'<{variable.type} name="{title}">\n{text}'.encode() + attributes + _left_out(others)

    def _described(self, dataset: Dataset) -> DapVariable:
        spec = dataset.spec
        transcoded = self._file is not None and self._file.form(dataset) is ChunkForm.TRANSCODED
        check_referable(dataset, "DMR++", transcoded=transcoded)
        if 0 in dataset.extent:
            raise Unsupported(f"{dataset.id} has no elements; DAP4 has no dimensions of size 0.")
        return DapVariable.of(spec.datatype.dtype, spec.fill, () if transcoded else spec.filters[0])

    def _chunk(self, row: Json, dataset: Dataset) -> bytes:
        refuse_filter_mask(row)
        place, href = row, ""
        if self._file is not None:
            place = row["file"]
        else:
            href = f' href="{xml_text(row.get("url") or object_url(row, self._base))}"'
        corner = corner_of(dataset.extent)
        position = ",".join(map(str, map(sub, row["offset"], corner)))
        where = f' chunkPositionInArray="[{position}]"' if position else ""
        return f'<dmrpp:chunk offset="{place["address"]}" nBytes="{place["size"]}"{where}{href}/>\n'.encode()


def _chunks(variable: DapVariable, chunks: ChunkPages) -> bytes:
    """Return the start of a variable's `dmrpp:chunks` element."""
    element = f'<dmrpp:chunks fillValue="{variable.fill}" byteOrder="{variable.byte_order}"'
    if variable.compression:
        element += f' compressionType="{variable.compression}"'
    if variable.level:
        element += f' deflateLevel="{variable.level}"'
    sizes = " ".join(map(str, chunks.grid.chunk))
    dims = f"<dmrpp:chunkDimensionSizes>{sizes}</dmrpp:chunkDimensionSizes>\n" if sizes else ""
    return f"{element}>\n{dims}".encode()


def _attributes(record: Record) -> tuple[bytes, list[str]]:
    """Return the elements of a record's plain attributes, and remarks on those that DAP4 cannot have."""
    found, others = b"", []
    for name, stored in plain_attributes(record):
        try:
            found += _attribute(name, *dap_attribute(stored))
        except Unsupported as error:
            others.append(f"attribute {name}: {error.message}")
    return found, others


def _attribute(name: str, kind: str, values: Sequence[str]) -> bytes:
    text = "".join(f"<Value>{xml_text(value)}</Value>" for value in values)
    return f'<Attribute name="{xml_text(name)}" type="{kind}">{text}</Attribute>\n'.encode()


def _left_out(remarks: Sequence[str]) -> bytes:
    """Return the `LEFT_OUT` attribute with remarks, in ASCII, because XML cannot contain all names."""
    return _attribute(LEFT_OUT, "String", [ascii(one)[1:-1] for one in remarks]) if remarks else b""


def _unnamed_groups(record: Record) -> list[str]:
    """Return the link titles of a group's subgroups that XML cannot contain."""
    return [title for title, id in hard_links(record) if collection_of(id) == "groups" and not is_xml(title)]


def _is_plain(*names: str) -> bool:
    """Return whether a DAP4 path can contain these names."""
    return all(is_xml(name) and not set(name) & set("./\\") for name in names)


def _path(names: tuple[str, ...]) -> str:
    return "/" + "/".join(names)


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return the number of equal names at the start of two paths."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count
