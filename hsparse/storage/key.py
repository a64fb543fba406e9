"""What a store key may be: the same rules for every store, so that a domain can move between them."""

from __future__ import annotations

from functools import lru_cache

from hsparse.errors import BadRequest

MAX_KEY_BYTES = 1024
MAX_COMPONENT_BYTES = 255
RESERVED = (".tmp-", ".hsparse")
"""Beginnings of components that the posix store keeps for its own files."""


@lru_cache(maxsize=16384)
def check_key(key: str) -> str:
    """Return `key` when it is valid in every store; `BadRequest` names the rule it breaks otherwise.

    A key is at most 1024 bytes of UTF-8, all printable: `/`-separated components of 1 to 255 bytes, none
    of them `.` or `..`, none beginning with `.tmp-` or `.hsparse`.
    """
    if not key.isprintable():
        raise BadRequest(f"The key {key!r} holds an unprintable character; use printable ones only.")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise BadRequest(f"The key {key[:64]!r}... is longer than {MAX_KEY_BYTES} bytes; use a shorter path.")
    for component in key.split("/"):
        if component in ("", ".", ".."):
            raise BadRequest(f"The key {key!r} has a component {component!r}; name every component.")
        if component.startswith(RESERVED):
            raise BadRequest(f"The key {key!r} has a reserved component {component!r}; use another name.")
        if len(component.encode()) > MAX_COMPONENT_BYTES:
            raise BadRequest(
                f"The key {key[:64]!r}... has a component longer than {MAX_COMPONENT_BYTES} bytes; "
                "use a shorter name."
            )
    return key


def is_key(key: str) -> bool:
    """Tell whether `check_key` accepts `key`: what another program left in a store may not be one."""
    try:
        check_key(key)
    except BadRequest:
        return False
    return True
