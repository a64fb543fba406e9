"""Handlers of maps. A map lists the locations of chunks, so that clients read them from store objects or HDF5 files.

`GET /datasets/{id}/map` and `GET /map` return JSON, or with `format=kerchunk` references that zarr opens.

The etag of a dataset's map changes with each change of its chunks or extent. It is computed from versions that data
nodes keep in memory, so a 304 response needs no request to the store.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from aiohttp import hdrs, web

from hsparse.errors import BadRequest, ErrorKind, HsparseError, Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import SECTIONS
from hsparse.format.filters.pipeline import codec_of
from hsparse.format.selections.points import Selection
from hsparse.hdf5.maps.kerchunk import KerchunkReferences, OpenDataset
from hsparse.hdf5.virtual_file.file_plans import FileAddresses
from hsparse.model.dataspace import shape_json
from hsparse.model.datatype import type_json
from hsparse.model.file_backed import has_no_objects
from hsparse.model.layout import CHUNKED, SPARSE_DATA, STRUCTURED, VL_DATA
from hsparse.sn.chunks.handlers import check_own_objects, has_others, listed_chunks, url_seconds
from hsparse.sn.chunks.mapped_objects import MappedObject, mapped_objects
from hsparse.sn.chunks.stored_chunk_read import REPORTED_KINDS
from hsparse.sn.domains.listing_check import ListingCheck
from hsparse.sn.http.challenge import WEAK, is_known
from hsparse.sn.http.response import encode_json
from hsparse.sn.records.dataset import StoredDataset, until_current
from hsparse.sn.records.object_path import join_path, left_out_links
from hsparse.sn.records.stored_chunks import ChunkPages, Json, Scaled, StoredChunks, map_query
from hsparse.sn.records.streamed_records import respond_parts, wrap_items
from hsparse.sn.request import Request
from hsparse.sn.values.url_selection import selected_if_named
from hsparse.wire.message import Record


def map_etag(dataset: StoredDataset, version: str) -> str | None:
    """Return the etag, without quotes, for a version of a dataset's chunks, or None if the version is empty.

    The version is empty for file-backed data, and if a data node does not answer. Request the version before listing
    chunks, so that the map has the state of this version or of a newer version.
    """
    if not version:
        return None
    state = [version, dataset.id, dataset.extent, dataset.spec.generation]
    return blake2b(json.dumps(state).encode(), digest_size=16).hexdigest()


def etag_headers(etag: str | None) -> dict[str, str]:
    """Return the headers of a response with this etag, which is weak because presigned URLs differ each time."""
    return {} if etag is None else {hdrs.ETAG: f'{WEAK}"{etag}"', hdrs.CACHE_CONTROL: "no-cache"}


def not_modified(request: Request, etag: str | None) -> web.Response | None:
    """Return a 304 response if the client has the map with this etag, or None if not."""
    if etag is None or not is_known(request.http.headers, etag):
        return None
    return web.Response(status=304, headers=etag_headers(etag))


MAP_VERSION = 1
FORMATS = ("json", "kerchunk")
ADDRESSES = ("objects", "file")
LOOPBACK = ("127.0.0.1", "::1")
FORWARDED = ("Forwarded", "Via", "X-Forwarded-For", "X-Real-IP")
"""Headers of requests that a proxy forwards. Their client may be on another machine."""


async def get_dataset_map(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/map`: stream a dataset's description and all its stored chunks."""
    _check_request(request)
    if request.arg("format") not in (None, "json"):
        check_own_objects(request)

    async def read(dataset: StoredDataset) -> web.StreamResponse:
        listing = _listing_check(request)
        listing.note(dataset.record)
        dataset = dataset.seen_by(_places(request))
        file = await _file(request)
        chunks = _chunks(request, dataset, file)
        references = _references(request, file)
        if references is not None:
            members = wrap_items("refs", references.array("", dataset, chunks), references.head())
            return await respond_parts(request, _confirmed(members, listing))
        if file is None and has_no_objects(dataset.record):
            raise Unsupported(
                f"The chunks of {dataset.id} are in a served file, not in store objects: request addresses=file."
            )
        if file is not None:
            page = await chunks.page(map_query())
            parts = _map(dataset, chunks, page, {"file": file.to_json()})
            return await respond_parts(request, _confirmed(parts, listing))
        return await _object_map(request, dataset, listed_chunks(request, dataset), listing)

    return await until_current(request, read)


async def _object_map(
    request: Request, dataset: StoredDataset, chunks: StoredChunks, listing: ListingCheck
) -> web.StreamResponse:
    """Respond with the map of a dataset or of the requested selection, or with 304 if the client has this map."""
    etag = map_etag(dataset, await chunks.version())
    if (known := not_modified(request, etag)) is not None:
        return known
    async with selected_if_named(request, dataset.extent) as selection:
        page = await chunks.page(map_query((), selection))
        parts = _confirmed(_map(dataset, chunks, page, _directory(request), selection), listing)
        return await respond_parts(request, parts, headers=etag_headers(etag))


def _directory(request: Request) -> Json:
    """Return {"directory": path of the store}, or {} if the client is behind a proxy or on another machine."""
    headers, peer = request.http.headers, request.http.remote or ""
    directory = request.service.settings.directory
    forwarded = any(name in headers for name in FORWARDED)
    is_told = directory and peer in LOOPBACK and not forwarded and not has_others(request)
    return {"directory": directory} if is_told else {}


async def get_map(request: Request) -> web.StreamResponse:
    """`GET /map`: stream a domain's datasets by path, with all their stored chunks."""
    root = request.domain.root
    if root is None:
        raise BadRequest(f"{request.domain.path} is a folder: only domains have a map.")
    _check_request(request)
    check_own_objects(request)
    file, listing = await _file(request), _listing_check(request)
    open_dataset = _opening(request, file, listing)
    objects = mapped_objects(request.service.owners, root)
    references = _references(request, file)
    if references is not None:
        return await respond_parts(request, _confirmed(references.domain(objects, open_dataset), listing))
    head = {"version": MAP_VERSION, "domain": request.domain.path, "root": root}
    return await respond_parts(request, _confirmed(_domain(head, objects, open_dataset, file), listing))


def _listing_check(request: Request) -> ListingCheck:
    return ListingCheck(request.service.owners, request.domain.root_group)


async def _confirmed(
    parts: AsyncGenerator[bytes, None], listing: ListingCheck
) -> AsyncGenerator[bytes, None]:
    """Yield the parts of a map; before the last part, raise an error if chunks were deleted during the listing."""
    last = b""
    async with aclosing(parts):
        async for part in parts:
            if last:
                yield last
            last = part
    await listing.confirm()
    yield last


def dataset_description(dataset: StoredDataset, chunks: ChunkPages) -> Json:
    """Return the properties of a dataset that are needed to decode its chunks.

    `pipelines` has the filters of each section with HDF5's ids and client values. Fixed-size elements also have `dtype`
    (numpy's) and `fillValue` (the bytes of one element in base64).
    """
    spec = dataset.spec
    flags = [SPARSE_DATA if spec.sparse else VL_DATA]
    kind: Json = {"class": STRUCTURED, "flags": flags} if spec.structured else {"class": CHUNKED}
    names = SECTIONS[: len(spec.filters)] if spec.structured else ("",)
    if spec.stripes is not None:
        kind["stripes"] = spec.stripes.places or spec.stripes.count
    found: Json = {
        "version": MAP_VERSION,
        "id": dataset.id,
        "type": type_json(dataset.record["type"]),
        "shape": shape_json(dataset.record["shape"]),
        "layout": kind | {"dims": list(chunks.grid.chunk)},
        "pipelines": [
            ({"section": name} if name else {}) | {"filters": list(map(_filter, pipeline))}
            for name, pipeline in zip(names, spec.filters, strict=True)
        ],
    }
    if not dataset.arrays.is_exact:
        return found
    fill = spec.fill or bytes(spec.dtype.itemsize)
    encoded = {"fillValue": base64.b64encode(fill).decode(), "fillValue_encoding": "base64"}
    return found | {"dtype": _descr(spec.datatype.dtype)} | encoded


async def _map(
    dataset: StoredDataset,
    chunks: ChunkPages,
    page: tuple[list[Json], Scaled],
    around: Json | None = None,
    selection: Selection | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield a dataset's map; `page` is the first page of its chunks, `around` has additional members."""
    about = dataset_description(dataset, chunks) | (around or {})
    parts = wrap_items("chunks", _rows(chunks, page, selection), about, b"[]")
    async with aclosing(parts):
        async for part in parts:
            yield part


async def _rows(
    chunks: ChunkPages, page: tuple[list[Json], Scaled], selection: Selection | None
) -> AsyncGenerator[bytes, None]:
    rows, marker = page
    while rows or marker:
        if rows:
            yield orjson.dumps(rows)[1:-1]
        rows, marker = await chunks.page(map_query(marker, selection)) if marker else ([], ())


async def _domain(
    head: Json,
    objects: AsyncGenerator[MappedObject, None],
    open_dataset: OpenDataset,
    file: FileAddresses | None,
) -> AsyncGenerator[bytes, None]:
    """Yield a domain's map: each dataset at its first path, and at each further path an alias of the first path."""
    yield orjson.dumps(head if file is None else head | {"file": file.to_json()})[:-1] + b',"datasets":{'
    comma = b""
    async with aclosing(objects):
        async for found in objects:
            if file is not None:
                file.check(found.record)
            if not found.is_dataset:
                for title, why in left_out_links(found.record).items():
                    failure = {"kind": ErrorKind.LEFT_OUT.value, "message": why}
                    yield comma + encode_json(join_path(found.path, title)) + b":"
                    yield encode_json({"error": failure})
                    comma = b","
                continue
            yield comma + encode_json(found.path) + b":"
            comma = b","
            if found.first != found.path:
                yield encode_json({"id": found.record["id"], "alias": found.first})
                continue
            try:
                dataset, chunks = open_dataset(found.record)
                page = await chunks.page(map_query())
            except HsparseError as error:
                if error.kind not in REPORTED_KINDS:
                    raise
                failure = {"kind": error.kind.value, "message": error.message}
                yield encode_json({"id": found.record["id"], "error": failure})
                continue
            async with aclosing(_map(dataset, chunks, page)) as parts:
                async for part in parts:
                    yield part
    if file is not None:
        file.check_complete()
    yield b"}}"


def _opening(request: Request, file: FileAddresses | None, listing: ListingCheck) -> OpenDataset:
    """Return a function that opens a record as a dataset and its chunks."""
    rights = request.file_rights()

    def open_dataset(record: Record) -> tuple[StoredDataset, ChunkPages]:
        listing.note(record)
        dataset = StoredDataset.of(record, rights).seen_by(_places(request))
        return dataset, _chunks(request, dataset, file)

    return open_dataset


def _places(request: Request) -> str | None:
    """Return how a map counts coordinates (see `StoredDataset.seen_by`): as requested if in JSON, else signed."""
    return request.arg("places") if request.arg("format") in (None, "json") else "signed"


def _chunks(request: Request, dataset: StoredDataset, file: FileAddresses | None) -> ChunkPages:
    chunks = listed_chunks(request, dataset)
    return chunks if file is None else file.chunks(dataset, chunks)


async def _file(request: Request) -> FileAddresses | None:
    """Return the addresses of the domain's file, or None if the request is for a map of objects."""
    return await FileAddresses.of(request) if request.arg("addresses") == "file" else None


def _references(request: Request, file: FileAddresses | None) -> KerchunkReferences | None:
    """Return the writer of kerchunk references, or None if the request is for another format."""
    if request.arg("format") != "kerchunk":
        return None
    base = request.arg("base") or ("" if file is None else file.href)
    return KerchunkReferences(base, file)


def _check_request(request: Request) -> None:
    """Raise `BadRequest` for unknown or contradictory values of parameters."""
    format = _choice(request, "format", FORMATS)
    addresses = _choice(request, "addresses", ADDRESSES)
    if format == "json" and request.arg("base"):
        raise BadRequest("base applies only to format=kerchunk: omit it; chunks in JSON have bucket and key.")
    for name in ("layout", "revision", "matrices"):
        if addresses == "objects" and request.arg(name):
            raise BadRequest(f"{name} applies only to the domain's file: add addresses=file.")
    if request.arg("select") and (format != "json" or addresses == "file"):
        raise BadRequest("select applies only to maps of objects in JSON: leave out format and addresses.")
    if url_seconds(request) is not None and format != "json" and addresses == "file":
        raise BadRequest(
            "urls applies only to objects, but addresses=file refers to the file: leave out urls or addresses."
        )


def _choice(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """Return a parameter, by default `choices[0]`; raises `BadRequest` if it is not one of `choices`."""
    value = request.arg(name) or choices[0]
    if value not in choices:
        raise BadRequest(f"{name} must be one of {', '.join(choices)}, not {value[:40]!r}.")
    return value


def _filter(filter: Filter) -> Json:
    return {"id": filter.id, "name": codec_of(filter).name, "values": list(filter.values)}


def _descr(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as JSON, like numpy's `descr`: a name, a list of fields, or [base, shape] for an array type."""
    if dtype.names is not None:
        return [
            [name, *(_descr(dtype[name]) if dtype[name].subdtype else (_descr(dtype[name]),))]
            for name in dtype.names
        ]
    if dtype.subdtype is not None:
        return [_descr(dtype.subdtype[0]), list(dtype.subdtype[1])]
    return dtype.str
