"""Tokens and keys of changes that grow a dataset: such a change is made once, however often it is sent.

A service node gives each change a token. A key is a digest of a user and of the `Idempotency-Key` of a request, which a
client may send again by another service node. The token of a change of the extent with a key is `KEY.REST`; with
another REST it is the same change. Other tokens have no dot. An append has keys beside its token: it may be that of
several requests.
"""

from __future__ import annotations

from hsparse.wire.message import Record


def keyed_token(key: str, rest: str) -> str:
    """Return a token with a key; without one only the rest."""
    return f"{key}.{rest}" if key else rest


def key_of(token: str) -> str:
    """Return the key in a token, empty if it has none."""
    return token.rpartition(".")[0]


def part_with_key(record: Record, key: str) -> Record | None:
    """Return the `token` of the part that is being appended with a key, and the `count` of that; None without one."""
    for part in record.get("appends", {}).get("parts", ()):
        for found, _, count in part.get("keys", ()):
            if found == key:
                return {"token": part["token"], "count": count}
    return None


def appended_before(record: Record, key: str) -> Record | None:
    """Return `dim`, `start` and `count` of what was appended with a key; None if it is not remembered."""
    for one in record.get("appended", ()):
        for found, offset, count in one.get("keys", ()):
            if found == key:
                return {"dim": one["dim"], "start": one["start"] + offset, "count": count}
    return None
