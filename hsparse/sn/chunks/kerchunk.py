"""References to dense chunks (kerchunk's JSON, version 1): zarr and xarray open them as arrays, through fsspec.

A reference is a URL, an offset and a length. There are none to structured chunks, nor to types and filters that zarr
lacks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import orjson

from hsparse.errors import HsparseError
from hsparse.format.hdf5.plan.planned_chunks import ChunkForm
from hsparse.model.file_backed import is_file_backed
from hsparse.sn.chunks.mapped_object import REPORTED_KINDS, MappedObject, check_referable
from hsparse.sn.chunks.zarr_array import GROUP, is_scale, scales_of, zarr_array, zarr_attributes
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
        """Yield the members of `refs` of one array.

        `Unsupported`, before anything is yielded, if zarr cannot describe it.
        """
        described = self._described(dataset, chunks)
        if is_file_backed(dataset.record):  # without filters there are no masks
            async for row in defined_chunks(chunks):
                refuse_filter_mask(row)
        rows = defined_chunks(chunks)
        async with aclosing(rows):
            first = await anext(rows, None)
            yield _member(f"{prefix}.zarray", described)
            dimensions = self._dimensions(prefix, dataset)
            yield _member(f"{prefix}.zattrs", zarr_attributes(dataset.record, dimensions))
            if first is not None:
                yield self._chunk(prefix, first)
            async for row in rows:
                yield self._chunk(prefix, row)

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

    def _described(self, dataset: Dataset, chunks: ChunkPages) -> Json:
        spec = dataset.spec
        transcoded = self._file is not None and self._file.form(dataset) is ChunkForm.TRANSCODED
        check_referable(dataset, "zarr", transcoded=transcoded)
        pipeline = () if transcoded else spec.filters[0]
        return zarr_array(dataset.extent, chunks.grid.chunk, spec.datatype.dtype, spec.fill, pipeline)

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
