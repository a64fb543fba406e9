"""Maps: all that one needs to read datasets straight from their objects, or from the files they are linked to.

`GET /datasets/{id}/map` and `GET /map`, in JSON or, with `format=kerchunk`, as references that zarr opens.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np
import orjson
from aiohttp import web

from hsparse.errors import BadRequest, HsparseError
from hsparse.format.filters import codec_of
from hsparse.model.dataspace import shown_shape
from hsparse.model.filter import Filter
from hsparse.model.filter_json import SECTIONS
from hsparse.model.layout import CHUNKED, SPARSE_DATA, STRUCTURED
from hsparse.model.shown_type import shown_type
from hsparse.sn.chunks.chunks import chunks_of, url_seconds
from hsparse.sn.chunks.kerchunk import References
from hsparse.sn.chunks.mapped import TOLD, Mapped, mapped_objects
from hsparse.sn.chunks.stored_chunks import Json, Scaled, StoredChunks, map_page
from hsparse.sn.context import Context
from hsparse.sn.json_stream import enclosed, encode_floats, respond_parts
from hsparse.sn.linked.file_rights import FileRights
from hsparse.sn.objects.dataset import Dataset, until_current

VERSION = 1


async def get_dataset_map(context: Context) -> web.StreamResponse:
    """`GET /datasets/{id}/map`: a dataset and all its stored chunks, streamed."""
    references = _references(context)

    async def read(dataset: Dataset) -> web.StreamResponse:
        chunks = chunks_of(context, dataset)
        if references is not None:
            members = references.array("", dataset, chunks)
            return await respond_parts(context, enclosed("refs", members, {"version": VERSION}))
        return await respond_parts(context, _map(dataset, chunks, await chunks.page(map_page())))

    return await until_current(context, read)


async def get_map(context: Context) -> web.StreamResponse:
    """`GET /map`: a domain's datasets with all their stored chunks, by path, streamed."""
    root = context.domain.root
    if root is None:
        raise BadRequest(f"{context.domain.path} is a folder: only domains have a map.")
    references = _references(context)
    url_seconds(context)  # what is wrong with the request is no dataset's fault
    objects = mapped_objects(context.service.owners, root)
    if references is None:
        return await respond_parts(context, _domain(context, root, objects))
    rights = FileRights(context.service.owners, context.principal, context.service.settings.bucket)

    def open_dataset(record: Json) -> tuple[Dataset, StoredChunks]:
        dataset = Dataset.of(record, rights)
        return dataset, chunks_of(context, dataset)

    return await respond_parts(context, references.domain(objects, open_dataset))


def described(dataset: Dataset, chunks: StoredChunks) -> Json:
    """Return what one must know of a dataset to decode its chunks.

    `pipelines` has one a section, each filter by HDF5's id, with its client values; `dtype` is numpy's, of elements of
    fixed size; `fillValue` is one element's bytes.
    """
    spec = dataset.spec
    kind = {"class": STRUCTURED, "flags": [SPARSE_DATA]} if spec.sparse else {"class": CHUNKED}
    names = SECTIONS[: len(spec.filters)] if spec.sparse else ("",)
    found: Json = {
        "version": VERSION,
        "id": dataset.id,
        "type": shown_type(dataset.record["type"]),
        "shape": shown_shape(dataset.record["shape"]),
        "layout": kind | {"dims": list(chunks.grid.chunk)},
        "pipelines": [
            ({"section": name} if name else {}) | {"filters": list(map(_filter, pipeline))}
            for name, pipeline in zip(names, spec.filters, strict=True)
        ],
    }
    if dataset.is_variable:
        return found
    fill = spec.fill or bytes(spec.dtype.itemsize)
    encoded = {"fillValue": base64.b64encode(fill).decode(), "fillValue_encoding": "base64"}
    return found | {"dtype": _descr(spec.datatype.dtype)} | encoded


async def _map(
    dataset: Dataset, chunks: StoredChunks, page: tuple[list[Json], Scaled]
) -> AsyncGenerator[bytes, None]:
    """Yield a dataset's map; `page` is the first of its chunks."""
    parts = enclosed("chunks", _rows(chunks, page), described(dataset, chunks), b"[]")
    async with aclosing(parts):
        async for part in parts:
            yield part


async def _rows(chunks: StoredChunks, page: tuple[list[Json], Scaled]) -> AsyncGenerator[bytes, None]:
    rows, marker = page
    while rows or marker:
        if rows:
            yield orjson.dumps(rows)[1:-1]
        rows, marker = await chunks.page(map_page(marker)) if marker else ([], ())


async def _domain(
    context: Context, root: str, objects: AsyncGenerator[Mapped, None]
) -> AsyncGenerator[bytes, None]:
    """Yield a domain's map: each dataset where a link first leads to it, and its other paths as aliases."""
    head = {"version": VERSION, "domain": context.domain.path, "root": root}
    yield orjson.dumps(head)[:-1] + b',"datasets":{'
    comma = b""
    rights = FileRights(context.service.owners, context.principal, context.service.settings.bucket)
    async with aclosing(objects):
        async for found in objects:
            if not found.is_dataset:
                continue
            yield comma + encode_floats(found.path) + b":"
            comma = b","
            if found.first != found.path:
                yield encode_floats({"id": found.record["id"], "alias": found.first})
                continue
            try:
                dataset = Dataset.of(found.record, rights)
                chunks = chunks_of(context, dataset)
                page = await chunks.page(map_page())
            except HsparseError as error:
                if error.kind not in TOLD:
                    raise
                told = {"kind": error.kind.value, "message": error.message}
                yield encode_floats({"id": found.record["id"], "error": told})
                continue
            async with aclosing(_map(dataset, chunks, page)) as parts:
                async for part in parts:
                    yield part
    yield b"}}"


def _references(context: Context) -> References | None:
    """Return what makes references, None when the map is wanted in JSON."""
    name = context.arg("format") or "json"
    if name not in ("json", "kerchunk"):
        raise BadRequest(f"format must be json or kerchunk, not {name[:40]!r}.")
    base = context.arg("base")
    if name == "json":
        if base:
            raise BadRequest("base is for format=kerchunk; in JSON chunks have bucket and key.")
        return None
    return References(base or f"s3://{context.service.settings.bucket}/")


def _filter(filter: Filter) -> Json:
    return {"id": filter.id, "name": codec_of(filter).name, "values": list(filter.values)}


def _descr(dtype: np.dtype[Any]) -> Any:
    """Return a type as numpy's `descr` has it: a name, a list of fields, or name and shape of an array type."""
    if dtype.names is not None:
        return [
            [name, *(_descr(dtype[name]) if dtype[name].subdtype else (_descr(dtype[name]),))]
            for name in dtype.names
        ]
    if dtype.subdtype is not None:
        return [_descr(dtype.subdtype[0]), list(dtype.subdtype[1])]
    return dtype.str
