"""Tokens of changes that grow a dataset: such a change is made once, however often a service node sends it.

The token of a request with an `Idempotency-Key` is `KEY.REST`, KEY a digest of that and of the user: a client may send
it again by another service node, with another REST, and it is the same change. Other tokens have no dot.
"""

from __future__ import annotations

from hsparse.wire.message import Record


def keyed_token(key: str, rest: str) -> str:
    """Return a token with a key; without one only the rest."""
    return f"{key}.{rest}" if key else rest


def key_of(token: str) -> str:
    """Return the key in a token, empty if it has none."""
    return token.rpartition(".")[0]


def part_of(record: Record, token: str) -> Record | None:
    """Return the part that is being appended to a dataset under a token, or under another one with the same key."""
    key = key_of(token)
    for part in reversed(record.get("appends", {}).get("parts", ())):  # most often it is the last one
        if part["token"] == token or (key and key_of(part["token"]) == key):
            found: Record = part
            return found
    return None


def appended_before(record: Record, token: str) -> Record | None:
    """Return `dim`, `start` and `count` of what was appended with the key in `token`; None if it is not remembered."""
    key = key_of(token)
    return next((one for one in record.get("appended", ()) if key and one["key"] == key), None)
