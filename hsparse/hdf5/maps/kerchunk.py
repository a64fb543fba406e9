"""Write references to dense chunks (kerchunk's JSON, version 1), which zarr and xarray open as arrays with fsspec.

A reference is a URL, an offset and a length. Datasets are zarr arrays (zarr storage specification, version 2) with
HDF5's filters. Structured chunks, and types and filters that zarr lacks, have no references.
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
from hsparse.hdf5.format.lower_bounds import bounds_attributes
from hsparse.hdf5.format.messages.file_type import file_type, is_written_as_stored
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm
from hsparse.hdf5.virtual_file.file_plans import FileAddresses
from hsparse.model.attribute import DIMENSION_NAMES, DIMENSION_ONLY
from hsparse.model.attribute_json import attribute_value_json
from hsparse.model.datatype import parse_type
from hsparse.model.file_backed import is_file_backed
from hsparse.sn.chunks.mapped_objects import MappedObject
from hsparse.sn.chunks.stored_chunk_read import REPORTED_KINDS
from hsparse.sn.http.response import encode_json
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.object_path import hard_links, join_path, left_out_links
from hsparse.sn.records.stored_chunks import ChunkPages, Json, defined_chunks, object_url, refuse_filter_mask
from hsparse.wire.message import Record

GROUP: Json = {"zarr_format": 2}
PLAIN = ("H5T_INTEGER", "H5T_FLOAT", "H5T_STRING", "H5T_ENUM", "H5T_BITFIELD")
"""The type classes of attributes that zarr can represent."""
DIMENSIONS = "_ARRAY_DIMENSIONS"
MASKED = "_FillValue"
"""The attribute whose value marks missing data (CF conventions)."""


def zarr_array(
    shape: Sequence[int], chunk: Sequence[int], dtype: np.dtype[Any], fill: bytes, pipeline: Sequence[Filter]
) -> Json:
    """Return the `.zarray` of a dense dataset; `fill` is the fill value as bytes of one element, or empty for zero.

    A fill value of zero is written as null, because xarray masks elements equal to a fill value, and readers treat null
    as zero. Raises `Unsupported` if zarr lacks the type or a filter.
    """
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunk),
        "dtype": zarr_type(dtype),
        "fill_value": _fill(fill, dtype) if fill else None,
        "order": "C",
        # The whole pipeline is in `filters`, without a compressor, to keep its order.
        "filters": [codec_of(filter).numcodecs(filter.values) for filter in pipeline] or None,
        "compressor": None,
        "dimension_separator": ".",
    }


def zarr_type(dtype: np.dtype[Any]) -> Any:
    """Return the zarr type: numpy's name or, for a compound, a list of its fields; raises `Unsupported`."""
    if dtype.names is not None:
        return [[name, zarr_type(dtype[name])] for name in dtype.names]
    if dtype.subdtype is not None or dtype.kind not in "biufSV":
        raise Unsupported(f"zarr has no type for elements of type {dtype}; read values, or the map in JSON.")
    return dtype.str


def masked_value(record: Json, dtype: np.dtype[Any]) -> bytes:
    """Return the attribute `_FillValue` as bytes of one element of `dtype`, or b"" if it is absent or does not fit."""
    stored = dict(plain_attributes(record)).get(MASKED)
    value = None if stored is None else _single(attribute_value_json(stored))
    if dtype.kind not in "iuf" or not isinstance(value, int | float):
        return b""
    try:
        return np.array(value, dtype).tobytes()
    except (OverflowError, ValueError):  # no element can equal it
        return b""


def zarr_attributes(record: Json, dimensions: Sequence[str] | None, masked: bytes = b"") -> Json:
    """Return the `.zattrs` of a record: attributes of plain types, and the names of an array's dimensions.

    An attribute of one element is a scalar, as in kerchunk. `masked` is not empty if the array's fill value equals
    `_FillValue`; a float `_FillValue` is then encoded in base64, as xarray expects it in zarr version 3, which
    VirtualiZarr writes.
    """
    found: Json = {name: _single(attribute_value_json(stored)) for name, stored in plain_attributes(record)}
    if masked and isinstance(found[MASKED], float):
        found[MASKED] = base64.b64encode(struct.pack("<d", found[MASKED])).decode()
    return found if dimensions is None else found | {DIMENSIONS: list(dimensions)}


def _single(value: Any) -> Any:
    """Return the only element of a list (also of nested lists) of length 1, or the value itself."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


def plain_attributes(record: Json) -> Iterator[tuple[str, Json]]:
    """Yield (name, stored attribute) for each attribute that has a value of a `PLAIN` type, and for lower bounds."""
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
    """Return the id of the first dimension scale of each dimension, or "" for a dimension without a scale."""
    rank = len(record["shape"].get("dims") or ())
    value = ((record.get("attributes") or {}).get("DIMENSION_LIST") or {}).get("value")
    if not isinstance(value, list) or len(value) != rank:
        return [""] * rank
    return [
        some[0].rpartition("/")[2] if isinstance(some, list) and some and isinstance(some[0], str) else ""
        for some in value
    ]


def is_scale(record: Json) -> bool:
    """Return whether a dataset is a one-dimensional dimension scale, which names its own dimension."""
    stored = (record.get("attributes") or {}).get("CLASS") or {}
    return stored.get("value") == "DIMENSION_SCALE" and len(record["shape"].get("dims") or ()) == 1


def _is_only_dimension(record: Json) -> bool:
    """Return whether a dataset is a netCDF dimension without coordinate values, which readers hide."""
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
OpenDataset = Callable[[Record], tuple[StoredDataset, ChunkPages]]


class KerchunkReferences:
    """Writes references to store objects at the URLs `base` + key; with `file`, to the file at the URL `base`."""

    def __init__(self, base: str, file: FileAddresses | None = None) -> None:
        self._base = base
        self._file = file
        self._names: dict[str, str] = {}

    def head(self) -> Json:
        """Return the members of the JSON that precede the references."""
        return {"version": 1} | ({} if self._file is None else {"file": self._file.to_json()})

    async def array(self, prefix: str, dataset: StoredDataset, chunks: ChunkPages) -> Members:
        """Yield the members of `refs` for one array, with its metadata last.

        Raises `Unsupported`, before the first yield, if zarr cannot describe the array.
        """
        self._check(dataset)
        if is_file_backed(dataset.record):  # only file-backed chunks can have filter masks
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
        """Yield a domain's JSON; its `skipped` maps each path without references to the reason for the omission."""
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
                    skipped |= {
                        join_path(found.path, title): why
                        for title, why in left_out_links(found.record).items()
                    }
                    if prefix:
                        yield b"," + _member(f"{prefix}.zgroup", GROUP)
                    yield b"," + _member(f"{prefix}.zattrs", zarr_attributes(found.record, None))
                    continue
                if _is_only_dimension(found.record):
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

    def _dimensions(self, prefix: str, dataset: StoredDataset) -> list[str]:
        """Return an array's dimension names: the names of its scales in visited groups, else generated names."""
        own = prefix.strip("/").rpartition("/")[2]
        if is_scale(dataset.record) and own:
            return [own]
        names = [self._names.get(scale, "") for scale in scales_of(dataset.record)]
        return [name or f"{own or 'array'}_dim_{dim}" for dim, name in enumerate(names)]

    def _check(self, dataset: StoredDataset) -> None:
        _check_referable(dataset, transcoded=self._is_transcoded(dataset))
        self._array(dataset, (), b"")

    def _metadata(
        self, prefix: str, dataset: StoredDataset, chunks: ChunkPages, *, is_whole: bool
    ) -> dict[str, Json]:
        """Return the metadata of an array; `is_whole` is true if all chunks of the grid are stored.

        xarray masks elements equal to the fill value, but only elements equal to `_FillValue` should be masked. If all
        chunks are stored, no element needs HDF5's fill value, so `_FillValue` becomes the array's fill value.
        """
        masked = masked_value(dataset.record, dataset.spec.datatype.dtype)
        fill = masked if is_whole else dataset.spec.fill
        attributes = zarr_attributes(
            dataset.record, self._dimensions(prefix, dataset), masked if fill == masked else b""
        )
        return {".zarray": self._array(dataset, chunks.grid.chunk, fill), ".zattrs": attributes}

    def _array(self, dataset: StoredDataset, chunk: Sequence[int], fill: bytes) -> Json:
        spec = dataset.spec
        pipeline = () if self._is_transcoded(dataset) else spec.filters[0]
        return zarr_array(dataset.extent, chunk, spec.datatype.dtype, fill, pipeline)

    def _is_transcoded(self, dataset: StoredDataset) -> bool:
        return self._file is not None and self._file.form(dataset) is ChunkForm.TRANSCODED

    def _chunk(self, prefix: str, row: Json, dataset: StoredDataset) -> bytes:
        refuse_filter_mask(row)
        name = ".".join(map(str, _from_zero(row, dataset))) or "0"
        if self._file is not None:
            place = [self._base, row["file"]["address"], row["file"]["size"]]
        else:
            place = [row.get("url") or object_url(row, self._base), row["address"], row["size"]]
        return _member(f"{prefix}{name}", place)


def _member(name: str, value: Any) -> bytes:
    """Encode a member of `refs`: metadata as JSON text, a chunk as a list."""
    return encode_json(name) + b":" + orjson.dumps(_text(value) if isinstance(value, dict) else value)


def _text(value: Json) -> str:
    return encode_json(value).decode()


def _from_zero(row: Json, dataset: StoredDataset) -> list[int]:
    """Return the scaled coordinates of a chunk relative to the dataset's first chunk, as references name chunks."""
    scaled: list[int] = row["scaled"]
    return list(map(sub, scaled, dataset.spec.base)) if dataset.spec.base else scaled


def _check_referable(dataset: StoredDataset, *, transcoded: bool) -> None:
    """Raise `Unsupported` if references cannot describe a dataset.

    `transcoded` is true if the references are to chunks that are converted to unfiltered dense chunks in the file.
    """
    if any(first_of(dataset.extent)):
        raise Unsupported(
            f"{dataset.id} has a lower bound inside of a chunk, and zarr counts chunks from 0: read the map in "
            "JSON, or move the bound to a multiple of the chunk's dimensions."
        )
    if dataset.spec.sparse and not transcoded:
        raise Unsupported(
            f"{dataset.id} is sparse, which zarr does not support: read the map in JSON, or the map of the stock "
            "file (addresses=file)."
        )
    if not dataset.arrays.is_exact:
        raise Unsupported(f"{dataset.id} has elements of variable length, which zarr cannot refer to.")
    if transcoded and not is_written_as_stored(file_type(dataset.spec.datatype.item)):
        raise Unsupported(
            f"{dataset.id} has references, gaps or space-padded text, whose bytes differ in a file: read values."
        )
    if dataset.spec.arange:
        raise Unsupported(f"{dataset.id} has an initializer, not a common fill value: read values.")
