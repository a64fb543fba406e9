"""Paths of snapshots: `/home/ann/run.h5@3`."""

from __future__ import annotations

import re

_SNAPSHOT = re.compile(r"(.+)@([1-9][0-9]{0,8})")


def snapshot_path(path: str, number: int) -> str:
    """Return the path at which a snapshot of a domain is read."""
    return f"{path}@{number}"


def parsed_snapshot(path: str) -> tuple[str, int] | None:
    """Return a pair: the domain's path and the number in a snapshot's path; return None for any other path."""
    match = _SNAPSHOT.fullmatch(path)
    return None if match is None else (match[1], int(match[2]))
