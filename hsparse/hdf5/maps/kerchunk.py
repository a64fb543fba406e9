"""References to dense chunks (kerchunk's JSON, version 1): zarr and xarray open them as arrays, through fsspec.

A reference is a URL, an offset and a length. There are none to structured chunks, nor to types and filters that zarr
lacks.

Dense datasets as zarr arrays (zarr storage specification, version 2): chunks are encoded by HDF5's filters.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from math import isnan
from operator import sub
from typing import Any

import numpy as np
import orjson

from hsparse.errors import HsparseError, Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import codec_of
from hsparse.format.selections.signed_extent import first_of
from hsparse.hdf5.files.file_plans import FileAddresses
from hsparse.hdf5.format.lower_bounds import bounds_attributes
from hsparse.hdf5.format.messages.file_type import file_type, is_written_as_stored
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm
from hsparse.model.attribute import DIMENSION_NAMES, DIMENSION_ONLY, attribute_value_json
from hsparse.model.datatype import parse_type
from hsparse.model.file_backed import is_file_backed
from hsparse.sn.chunks.stored_chunk_read import REPORTED_KINDS, MappedObject
from hsparse.sn.http.response import encode_json
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import hard_links
from hsparse.sn.records.stored_chunks import ChunkPages, Json, defined_chunks, object_url, refuse_filter_mask
from hsparse.wire.message import Record

GROUP: Json = {"zarr_format": 2}
PLAIN = ("H5T_INTEGER", "H5T_FLOAT", "H5T_STRING", "H5T_ENUM", "H5T_BITFIELD")
"""The classes of attributes that zarr can have."""
DIMENSIONS = "_ARRAY_DIMENSIONS"
MASKED = "_FillValue"
"""The attribute whose value stands for missing data, by the conventions of CF."""


def zarr_array(
    shape: Sequence[int], chunk: Sequence[int], dtype: np.dtype[Any], fill: bytes, pipeline: Sequence[Filter]
) -> Json:
    """Return the `.zarray` of a dense dataset; `fill` has the bytes of one element, none for zero.

    Without bytes the fill value is null, which readers treat as zero: xarray masks elements equal to a fill value.
    `Unsupported` if zarr lacks the type or a filter.
    """
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunk),
        "dtype": zarr_type(dtype),
        "fill_value": _fill(fill, dtype) if fill else None,
        "order": "C",
        # As filters, not as a compressor, because these are undone in the order of the pipeline.
        "filters": [codec_of(filter).numcodecs(filter.values) for filter in pipeline] or None,
        "compressor": None,
        "dimension_separator": ".",
    }


def zarr_type(dtype: np.dtype[Any]) -> Any:
    """Return the zarr type: numpy's name or, for a compound, the list of its fields."""
    if dtype.names is not None:
        return [[name, zarr_type(dtype[name])] for name in dtype.names]
    if dtype.subdtype is not None or dtype.kind not in "biufSV":
        raise Unsupported(f"zarr has no type for elements like {dtype}; read values, or the map in JSON.")
    return dtype.str


def masked_value(record: Json, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of the element that the attribute `_FillValue` has masked; none without that attribute."""
    stored = dict(plain_attributes(record)).get(MASKED)
    value = None if stored is None else _single(attribute_value_json(stored))
    if dtype.kind not in "iuf" or not isinstance(value, int | float):
        return b""
    try:
        return np.array(value, dtype).tobytes()
    except (OverflowError, ValueError):  # no element equals it
        return b""


def zarr_attributes(record: Json, dimensions: Sequence[str] | None, masked: bytes = b"") -> Json:
    """Return the `.zattrs` of a record: attributes of plain types, and the names of an array's dimensions.

    Attributes of one element are that element, as kerchunk has them. `masked` is the array's fill value if it has that
    of `_FillValue`, which is then in xarray's form: it reads that of arrays of version 3, as VirtualiZarr makes them.
    """
    found: Json = {name: _single(attribute_value_json(stored)) for name, stored in plain_attributes(record)}
    if masked and isinstance(found[MASKED], float):
        found[MASKED] = base64.b64encode(struct.pack("<d", found[MASKED])).decode()
    return found if dimensions is None else found | {DIMENSIONS: list(dimensions)}


def _single(value: Any) -> Any:
    """Return the element of a list, or of nested lists, that have one."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


def plain_attributes(record: Json) -> Iterator[tuple[str, Json]]:
    """Yield names and stored forms of the user's attributes of plain types that have a value, and of lower bounds."""
    bounds = bounds_attributes(record.get("shape") or {})
    of_bounds = {name: one | {"type": parse_type(one["type"]).item} for name, one in bounds.items()}
    for name, stored in ((record.get("attributes") or {}) | of_bounds).items():
        kind = stored["type"].get("class") if isinstance(stored["type"], dict) else None
        if (
            kind in PLAIN
            and name not in DIMENSION_NAMES
            and "encoding" not in stored
            and stored.get("value") is not None
        ):
            yield name, stored


def scales_of(record: Json) -> list[str]:
    """Return the id of the first dimension scale of each dimension, empty without one."""
    rank = len(record["shape"].get("dims") or ())
    value = ((record.get("attributes") or {}).get("DIMENSION_LIST") or {}).get("value")
    if not isinstance(value, list) or len(value) != rank:
        return [""] * rank
    return [
        some[0].rpartition("/")[2] if isinstance(some, list) and some and isinstance(some[0], str) else ""
        for some in value
    ]


def is_scale(record: Json) -> bool:
    """Say whether a dataset is a dimension scale, which names its own dimension."""
    stored = (record.get("attributes") or {}).get("CLASS") or {}
    return stored.get("value") == "DIMENSION_SCALE" and len(record["shape"].get("dims") or ()) == 1


def is_only_dimension(record: Json) -> bool:
    """Say whether a dataset is a netCDF dimension that has a length and no values, which readers hide."""
    stored = (record.get("attributes") or {}).get("NAME") or {}
    return is_scale(record) and str(stored.get("value")).startswith(DIMENSION_ONLY)


def _fill(fill: bytes, dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None or dtype.kind in "SV":
        return base64.b64encode(fill).decode()
    value = np.frombuffer(fill, dtype)[0].item()
    if isinstance(value, float) and value - value != 0:
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


Members = AsyncGenerator[bytes, None]
OpenDataset = Callable[[Record], tuple[Dataset, ChunkPages]]


class KerchunkReferences:
    """References to objects with the URLs `base` + key or, with `file`, to the file at the URL `base`."""

    def __init__(self, base: str, file: FileAddresses | None = None) -> None:
        self._base = base
        self._file = file
        self._names: dict[str, str] = {}

    def head(self) -> Json:
        """Return the keys of the JSON besides the references."""
        return {"version": 1} | ({} if self._file is None else {"file": self._file.to_json()})

    async def array(self, prefix: str, dataset: Dataset, chunks: ChunkPages) -> Members:
        """Yield the members of `refs` of one array, its metadata last.

        `Unsupported`, before anything is yielded, if zarr cannot describe it.
        """
        self._check(dataset)
        if is_file_backed(dataset.record):  # without filters there are no masks
            async for row in defined_chunks(chunks):
                refuse_filter_mask(row)
        rows = defined_chunks(chunks)
        count = 0
        async with aclosing(rows):
            async for row in rows:
                yield self._chunk(prefix, row, dataset)
                count += 1
        for name, value in self._metadata(
            prefix, dataset, chunks, is_whole=count == chunks.grid.size
        ).items():
            yield _member(f"{prefix}{name}", value)

    async def domain(
        self,
        objects: AsyncGenerator[MappedObject, None],
        open_dataset: OpenDataset,
    ) -> Members:
        """Yield the whole JSON of a domain; datasets that zarr cannot describe are `skipped`, with the reason."""
        skipped: dict[str, str] = {}
        yield encode_json(self.head())[:-1] + b',"refs":{' + _member(".zgroup", GROUP)
        async with aclosing(objects):
            async for found in objects:
                if self._file is not None:
                    self._file.check(found.record)
                prefix = found.path.strip("/") + "/" if found.path != "/" else ""
                if not found.is_dataset:
                    for title, id in hard_links(found.record):
                        self._names.setdefault(id, title)
                    if prefix:
                        yield b"," + _member(f"{prefix}.zgroup", GROUP)
                    yield b"," + _member(f"{prefix}.zattrs", zarr_attributes(found.record, None))
                    continue
                if is_only_dimension(found.record):
                    continue
                try:
                    members = self.array(prefix, *open_dataset(found.record))
                    first = await anext(members)
                except HsparseError as error:
                    if error.kind not in REPORTED_KINDS:
                        raise
                    skipped[found.path] = error.message
                    continue
                async with aclosing(members):
                    yield b"," + first
                    async for member in members:
                        yield b"," + member
        if self._file is not None:
            self._file.check_complete()
        yield b'},"skipped":' + orjson.dumps(skipped) + b"}"

    def _dimensions(self, prefix: str, dataset: Dataset) -> list[str]:
        """Return the names of an array's dimensions: those of its scales whose groups have been visited."""
        own = prefix.strip("/").rpartition("/")[2]
        if is_scale(dataset.record) and own:
            return [own]
        names = [self._names.get(scale, "") for scale in scales_of(dataset.record)]
        return [name or f"{own or 'array'}_dim_{dim}" for dim, name in enumerate(names)]

    def _check(self, dataset: Dataset) -> None:
        check_referable(dataset, "zarr", transcoded=self._is_transcoded(dataset))
        self._array(dataset, (), b"")

    def _metadata(
        self, prefix: str, dataset: Dataset, chunks: ChunkPages, *, is_whole: bool
    ) -> dict[str, Json]:
        """Return the metadata of an array; `is_whole`: all chunks of the grid are stored.

        xarray masks elements equal to a fill value, and only those of `_FillValue` are to be: HDF5's own is left out
        where no element needs it.
        """
        masked = masked_value(dataset.record, dataset.spec.datatype.dtype)
        fill = masked if is_whole else dataset.spec.fill
        attributes = zarr_attributes(
            dataset.record, self._dimensions(prefix, dataset), masked if fill == masked else b""
        )
        return {".zarray": self._array(dataset, chunks.grid.chunk, fill), ".zattrs": attributes}

    def _array(self, dataset: Dataset, chunk: Sequence[int], fill: bytes) -> Json:
        spec = dataset.spec
        pipeline = () if self._is_transcoded(dataset) else spec.filters[0]
        return zarr_array(dataset.extent, chunk, spec.datatype.dtype, fill, pipeline)

    def _is_transcoded(self, dataset: Dataset) -> bool:
        return self._file is not None and self._file.form(dataset) is ChunkForm.TRANSCODED

    def _chunk(self, prefix: str, row: Json, dataset: Dataset) -> bytes:
        refuse_filter_mask(row)
        name = ".".join(map(str, from_zero(row, dataset))) or "0"
        if self._file is not None:
            place = [self._base, row["file"]["address"], row["file"]["size"]]
        else:
            place = [row.get("url") or object_url(row, self._base), row["address"], row["size"]]
        return _member(f"{prefix}{name}", place)


def _member(name: str, value: Any) -> bytes:
    """Return a member of `refs`: metadata are JSON text, chunks are lists."""
    return encode_json(name) + b":" + orjson.dumps(_text(value) if isinstance(value, dict) else value)


def _text(value: Json) -> str:
    return encode_json(value).decode()


def from_zero(row: Json, dataset: Dataset) -> list[int]:
    """Return the scaled coordinates of a chunk, counted from that of the lower bound, as references count."""
    scaled: list[int] = row["scaled"]
    return list(map(sub, scaled, dataset.spec.base)) if dataset.spec.base else scaled


def check_referable(dataset: Dataset, reader: str, *, transcoded: bool) -> None:
    """Raise `Unsupported` for data that references of `reader` cannot describe, and name an alternative.

    `transcoded`: the references are to chunks that are converted for the file of the domain, to dense ones.
    """
    if any(first_of(dataset.extent)):
        raise Unsupported(
            f"{dataset.id} has a lower bound inside of a chunk, and {reader} counts chunks from 0: read the map in "
            "JSON, or move the bound to a multiple of the chunk's dimensions."
        )
    if dataset.spec.sparse and not transcoded:
        raise Unsupported(
            f"{dataset.id} is sparse, which {reader} is not: read the map in JSON, or take that of the stock file "
            "(addresses=file)."
        )
    if not dataset.arrays.is_exact:
        raise Unsupported(f"{dataset.id} has elements of variable length, which {reader} does not refer to.")
    if transcoded and not is_written_as_stored(file_type(dataset.spec.datatype.item)):
        raise Unsupported(
            f"{dataset.id} has references, which a file has as addresses, or gaps or blanks: read values."
        )
    if dataset.spec.arange:
        raise Unsupported(f"{dataset.id} has an initializer: what was not written is no one fill value.")
