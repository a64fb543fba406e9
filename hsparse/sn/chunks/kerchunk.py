"""References to dense chunks (kerchunk's JSON, version 1): zarr and xarray open them as arrays, through fsspec.

A reference is a URL, an offset and a length. There are none to structured chunks, nor to types and filters that zarr
lacks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from hsparse.errors import HsparseError
from hsparse.format.hdf5.plan.planned_chunks import ChunkForm
from hsparse.model.file_backed import is_file_backed
from hsparse.sn.chunks.stored_chunk_read import REPORTED_KINDS, MappedObject, check_referable
from hsparse.sn.chunks.zarr_array import (
    GROUP,
    is_only_dimension,
    is_scale,
    masked_value,
    scales_of,
    zarr_array,
    zarr_attributes,
)
from hsparse.sn.files.file_addresses import FileAddresses
from hsparse.sn.http.response import encode_json
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import hard_links
from hsparse.sn.records.stored_chunks import ChunkPages, Json, defined_chunks, refuse_filter_mask
from hsparse.wire.message import Record

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
                yield self._chunk(prefix, row)
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

    def _chunk(self, prefix: str, row: Json) -> bytes:
        refuse_filter_mask(row)
        name = ".".join(map(str, row["scaled"])) or "0"
        if self._file is not None:
            place = [self._base, row["file"]["address"], row["file"]["size"]]
        else:
            place = [row.get("url") or self._base + row["key"], row["address"], row["size"]]
        return _member(f"{prefix}{name}", place)


def _member(name: str, value: Any) -> bytes:
    """Return a member of `refs`: metadata are JSON text, chunks are lists."""
    return encode_json(name) + b":" + orjson.dumps(_text(value) if isinstance(value, dict) else value)


def _text(value: Json) -> str:
    return encode_json(value).decode()
