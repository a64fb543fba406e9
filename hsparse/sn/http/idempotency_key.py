"""The header `Idempotency-Key`: a client's name for a change, under which it may send that again.

It is as in draft-ietf-httpapi-idempotency-key-header: a string of RFC 8941, section 3.3.3, in quotation marks.
"""

from __future__ import annotations

import re
from hashlib import sha256

from aiohttp import web

from hsparse.errors import BadRequest

HEADER = "Idempotency-Key"
MAX_KEY = 255
"""The most characters of a key."""
STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')
DIGEST_BYTES = 16


def idempotency_key(request: web.BaseRequest, user: str) -> str:
    """Return a digest of the user and the key in a request's header, empty without one.

    Keys of two users have nothing to do with each other. `BadRequest` for one that is no string, or too long.
    """
    values = request.headers.getall(HEADER, [])
    if not values:
        return ""
    match = STRING.fullmatch(values[0].strip(" \t")) if len(values) == 1 else None
    if match is None or len(match[1]) > MAX_KEY:
        raise BadRequest(
            f'{HEADER} must be one string of 1 to {MAX_KEY} ASCII characters in quotation marks, like "8e03978e-40d5".'
        )
    return sha256(f"{user}\0{match[1]}".encode()).digest()[:DIGEST_BYTES].hex()
