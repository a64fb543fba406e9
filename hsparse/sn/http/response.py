"""The one shape of answers: JSON as stock clients expect it.

JSON of answers, with the floats that JSON has no word for as Python reads them.

Links between answers, for clients that browse.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
from aiohttp import web

from hsparse.errors import ErrorKind, HsparseError, RateLimited
from hsparse.sn.context import Context
from hsparse.wire.status import STATUS

JSON_TYPE = "application/json; charset=utf-8"


def respond(value: Any, status: int = 200) -> web.Response:
    """Answer with JSON; numpy scalars and arrays are allowed in `value`."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, headers={"Content-Type": JSON_TYPE})


def respond_error(error: HsparseError, status: int | None = None) -> web.Response:
    """Answer with an error: `{"error": {"kind":..., "message":...}}`, the sentence also as the reason.

    `status` is the kind's if it is not given.
    """
    headers = {"Content-Type": JSON_TYPE}
    if error.kind in (ErrorKind.BUSY, ErrorKind.MOVED):
        headers["Retry-After"] = "1"
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    reason = "".join(c for c in error.message if 32 <= ord(c) < 127)[:200] or None
    return web.Response(
        body=orjson.dumps({"error": {"kind": error.kind.value, "message": error.message}}),
        status=STATUS[error.kind] if status is None else status,
        reason=reason,
        headers=headers,
    )


def encode_floats(value: Any) -> bytes:
    """Return JSON in which floats that are not finite are `NaN` and `Infinity`, as Python reads them.

    Arrays of numbers are allowed in `value`.
    """
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in body:  # what orjson makes of them; without one there is none, and it is nine times as fast
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=np.ndarray.tolist)
        body = text.encode()
    return body


def encode_members(members: dict[str, Any]) -> bytes:
    """Return the members of a JSON object, without its braces, as `encode_floats` does; several are fastest at once.

    Those that are bytes are JSON already, and then all are.
    """
    if any(isinstance(item, bytes) for item in members.values()):
        return b",".join(orjson.dumps(name) + b":" + item for name, item in members.items())
    body = orjson.dumps(members, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in body:
        return body[1:-1]
    return b",".join(encode_floats(name) + b":" + encode_floats(item) for name, item in members.items())


Href = dict[str, str]


def href(context: Context, path: str, domain: str | None = None) -> str:
    """Return an absolute URL: with `domain`, or the request's own `domain` parameter if it has one."""
    request = context.request
    named = domain if domain is not None else request.query.get("domain")
    query = f"?domain={named}" if named else ""
    return f"{request.scheme}://{request.host}{path}{query}"


def hrefs(context: Context, **paths: str) -> list[Href]:
    """Return `[{"rel": name, "href": URL}]` of each named path."""
    return [{"rel": rel, "href": href(context, path)} for rel, path in paths.items()]


def domain_hrefs(context: Context, path: str, root: str | None, *, home: bool = False) -> list[Href]:
    """Return the links of a domain or, with `root` None, of a folder."""
    found = hrefs(context, self="/")
    if root is None:
        folder = href(context, "/domains")
        found.append({"rel": "domains", "href": folder if folder.endswith("/") else folder + "/"})
    else:
        found += hrefs(
            context, database="/datasets", groupbase="/groups", typebase="/datatypes", root=f"/groups/{root}"
        )
    if home:
        found += hrefs(context, home="/")
    found += hrefs(context, acls="/acls")
    parent = path.rpartition("/")[0]
    if parent:
        bucket = context.service.settings.bucket
        found.append({"rel": "parent", "href": href(context, "/", domain=bucket + parent)})
    return found
