"""The etag of a dataset's map: another one after any change of its chunks or its extent.

It is made of versions that the data nodes keep in memory, so that a client which has the map is told so without a
request to the store.
"""

from __future__ import annotations

import json
from hashlib import blake2b

from aiohttp import hdrs, web

from hsparse.sn.http.byte_range import WEAK, is_known
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.request import Request


def map_etag(dataset: Dataset, version: str) -> str | None:
    """Return the etag, without quotes, for a version of the chunks; None without one.

    There is none of data in files, or if a data node does not answer. The version has to be asked for before
    the chunks are listed: then the map is of that state or a newer one.
    """
    if not version:
        return None
    state = [version, dataset.id, dataset.extent, dataset.spec.generation]
    return blake2b(json.dumps(state).encode(), digest_size=16).hexdigest()


def etag_headers(etag: str | None) -> dict[str, str]:
    """Return the headers of an answer with this etag; it is weak, as presigned URLs differ each time."""
    return {} if etag is None else {hdrs.ETAG: f'{WEAK}"{etag}"', hdrs.CACHE_CONTROL: "no-cache"}


def not_modified(request: Request, etag: str | None) -> web.Response | None:
    """Return a 304 if the client has the map of this etag already."""
    if etag is None or not is_known(request.http.headers, etag):
        return None
    return web.Response(status=304, headers=etag_headers(etag))
