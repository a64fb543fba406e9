"""Ids of jobs, and the keys of their records: `db/.jobs/...`, which no server takes for a domain or an object."""

from __future__ import annotations

import re
from hashlib import blake2b

from hsparse.clock import Clock
from hsparse.errors import NotFound

PREFIX = "j-"
FOLDER = "db/.jobs/"
SUFFIX = ".json"
_ID = re.compile("j-[0-9a-f]{12}-[0-9a-f]{12}-[0-9a-f]{16}")


def new_job_id(owner: str, clock: Clock) -> str:
    """Return an id for a job of a user: those of one user begin alike, and sort by when they were made."""
    return f"{PREFIX}{_owner_digits(owner)}-{int(clock.now() * 1000):012x}-{clock.token(8).hex()}"


def is_job(id: str) -> bool:
    """Say whether the id of a record is a job's."""
    return id.startswith(PREFIX)


def check_job_id(id: str) -> str:
    """Return a job's id; `NotFound` for what is none."""
    if _ID.fullmatch(id) is None:
        raise NotFound(f"There is no job {id[:80]!r}.")
    return id


def job_key(id: str) -> str:
    """Return the key of a job's record."""
    return f"{FOLDER}{id.removeprefix(PREFIX)}{SUFFIX}"


def job_of_key(key: str) -> str:
    """Return the id of the job whose record has this key."""
    return PREFIX + key.removeprefix(FOLDER).removesuffix(SUFFIX)


def owner_keys(owner: str) -> str:
    """Return what the keys of a user's jobs begin with; so may another user's, it has a hash of the name."""
    return f"{FOLDER}{_owner_digits(owner)}-"


def _owner_digits(owner: str) -> str:
    return blake2b(owner.encode(), digest_size=6).hexdigest()
