"""Handlers of domains as HDF5 files: `GET` and `HEAD /files/{path}`, with range requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, Gone, PreconditionFailed
from hsparse.format.buffer import Buffer
from hsparse.hdf5.virtual_dataset.copied_chunks import CopyingOwners
from hsparse.hdf5.virtual_dataset.sources import NestedRights
from hsparse.hdf5.virtual_file.domain_state import file_domain, requested_form
from hsparse.hdf5.virtual_file.file_pieces import FilePieces
from hsparse.hdf5.virtual_file.file_plans import FilePlans, PlannedFile
from hsparse.sn.domains.listing_check import is_deleted
from hsparse.sn.http.challenge import HttpRange, is_known, matches_etag, requested_range
from hsparse.sn.http.response import respond_error
from hsparse.sn.http.stream import send_stream
from hsparse.sn.request import Domain, Request

HDF5 = "application/x-hdf5"
DOMAIN_HEADER = "X-Hdf-Domain"
"""The response header with the percent-encoded path of the domain. The URL may have an additional `.h5`."""


async def get_file(request: Request) -> web.StreamResponse:
    """`GET /files/{path}`: return a domain as an HDF5 file, or a range of the file."""
    form, domain = requested_form(request), await _domain(request)
    path, root = domain.path, domain.root_group
    headers, files = request.http.headers, request.service.component(FilePlans)
    rights = NestedRights(request.file_rights(), path)
    file = await files.current(root, form, rights, check=hdrs.RANGE not in headers)
    await request.file_rights().require(*file.changed)
    refused = _conditional_answer(request, file)
    if refused is not None:
        return refused
    size = file.plan.file.size
    wanted = requested_range(headers, file.etag, size)
    if wanted is not None and not wanted.satisfiable:
        answer = respond_error(BadRequest(f"The file has {size} bytes; none are in that range."), status=416)
        answer.headers[hdrs.CONTENT_RANGE] = f"bytes */{size}"
        return answer
    response = _response(file, wanted)
    bounds = wanted or HttpRange(0, size, size)
    settings = request.service.settings
    owners = CopyingOwners(request.service.owners, file.virtual, rights)
    pieces = FilePieces(owners, file.plan, settings.page_size, files.bands)
    async with request.service.answers.hold(owners.memory + pieces.memory(bounds.start, bounds.stop)):
        try:
            return await send_stream(request, response, _read(pieces, bounds, request, domain))
        except PreconditionFailed:
            files.drop(root, form, file.etag)
            raise


async def head_file(request: Request) -> web.StreamResponse:
    """`HEAD /files/{path}`: return the length and etag of the file of a domain's current state."""
    form, domain = requested_form(request), await _domain(request)
    path, root = domain.path, domain.root_group
    rights = NestedRights(request.file_rights(), path)
    file = await request.service.component(FilePlans).current(root, form, rights, check=True)
    await request.file_rights().require(*file.changed)
    refused = _conditional_answer(request, file)
    if refused is not None:
        return refused
    response = _response(file, None)
    response.headers[DOMAIN_HEADER] = quote(path)
    return response


async def _read(
    pieces: FilePieces, bounds: HttpRange, request: Request, domain: Domain
) -> AsyncGenerator[Buffer, None]:
    """Yield a range of a file. For a snapshot, yield the last part only if its domain was not deleted meanwhile.

    After the deletion, reads may return current data instead of the snapshot's data, although etags are equal.
    """
    parts = pieces.read(bounds.start, bounds.stop)
    last: Buffer = b""
    async with aclosing(parts):
        async for part in parts:
            if len(last):
                yield last
            last = part
    record = domain.record
    if "snapshot" in record and await is_deleted(request.service.owners, record["head"]):
        raise Gone(f"{domain.path} was deleted, together with its domain, while it was read.")
    yield last


async def _domain(request: Request) -> Domain:
    """Return the domain that the URL names; raises `Forbidden` without the right to read, `BadRequest` for a folder."""
    domain = await file_domain(request, "/" + request.params["path"])
    if domain.root is None:
        raise BadRequest(f"{domain.path} is a folder: only domains are files.")
    return domain


def _conditional_answer(request: Request, file: PlannedFile) -> web.Response | None:
    """Return a 304 response if the client has the file, or None; raises `PreconditionFailed` if `If-Match` differs."""
    headers = request.http.headers
    if hdrs.IF_MATCH in headers and not matches_etag(headers[hdrs.IF_MATCH], file.etag):
        raise PreconditionFailed(
            f'The domain was changed; its file now has the etag "{file.etag}": read the file from the start.'
        )
    if is_known(headers, file.etag):
        return web.Response(status=304, headers={hdrs.ETAG: f'"{file.etag}"'})
    return None


def _response(file: PlannedFile, wanted: HttpRange | None) -> web.StreamResponse:
    headers = {hdrs.CONTENT_TYPE: HDF5, hdrs.ACCEPT_RANGES: "bytes", hdrs.ETAG: f'"{file.etag}"'}
    if wanted is None:
        response = web.StreamResponse(headers=headers)
        response.content_length = file.plan.file.size
        return response
    response = web.StreamResponse(status=206, headers=headers | {hdrs.CONTENT_RANGE: wanted.content_range})
    response.content_length = wanted.stop - wanted.start
    return response
