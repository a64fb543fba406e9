"""Times of creation that clients give to links and attributes, as h5pyd 1.0 does with all of them."""

from __future__ import annotations

from typing import Any

from hsparse.errors import BadRequest

PAST, FUTURE = 10.0, 300.0
"""How many seconds before and after the server's time a given time may be; others are ignored, as in HSDS."""
Json = dict[str, Any]


def given_creation_time(body: Json, now: float) -> Json:
    """Return `{"created": time}` of a link or attribute in a request, to the last digit; `{}` without a usable one.

    `now` is the server's time in seconds since the Unix epoch. `BadRequest` for what is no number.
    """
    created = body.get("created")
    if created is None:
        return {}
    if not isinstance(created, int | float) or isinstance(created, bool):
        raise BadRequest(f"created must be a time in seconds, not {created!r:.40}.")
    return {"created": created} if now - PAST <= created <= now + FUTURE else {}
