"""Ids of objects and jobs, and the store keys that follow from them.

Schema v2; the rules for objects are those of `h5json.objid`. A job's key, `db/.jobs/...`, is one that no server takes
for a domain's or an object's.

Names of buckets: a bucket is an S3 bucket, or a directory by its name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from hsparse.clock import Clock
from hsparse.errors import BadRequest, NotFound
from hsparse.model.short_text import short_repr

COLLECTIONS = {"g": "groups", "d": "datasets", "t": "datatypes"}
MAP_FOLDER = ".map/"
DELTA_FOLDER = ".record/"
JOB_PREFIX = "j-"
JOB_FOLDER = "db/.jobs/"
JOB_SUFFIX = ".json"
DELETION_FOLDER = "db/.deleting/"
_ID = re.compile("[gdt]-[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{6}-[0-9a-f]{6}")
_OLD_ID = re.compile("[gdt]-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""Ids of schema v1: a prefix and a UUID. No object has one here."""
_TREE_KEY = re.compile("db/([0-9a-f]{8}-[0-9a-f]{8})/(?:d/([0-9a-f]{4}-[0-9a-f]{6}-[0-9a-f]{6})/)?")
_ROTATED = str.maketrans("0123456789abcdef", "89abcdef01234567")
_JOB_ID = re.compile("j-[0-9a-f]{12}-[0-9a-f]{12}-[0-9a-f]{16}")
_CHUNK_NAME = re.compile("-?[0-9]+(?:_-?[0-9]+)*")


def new_root_id(clock: Clock) -> str:
    """Return a new root group's id: its second half is the first, each digit rotated by 8."""
    return root_id(clock.token(8))


def root_id(half: bytes) -> str:
    """Return the root group's id whose first 8 bytes are `half`."""
    return _format("g", half.hex() + _rotated(half.hex()))


def new_id(collection: str, root: str, clock: Clock) -> str:
    """Return a new id in `collection` (`groups`, `datasets`, `datatypes`) of the domain of `root`."""
    return derived_id(collection, root, clock.token(8))


def derived_id(collection: str, root: str, digest: bytes) -> str:
    """Return the id in `collection` of the domain of `root` that has the first 8 bytes of `digest`."""
    return _format(
        {"groups": "g", "datasets": "d", "datatypes": "t"}[collection],
        domain_hex(root) + digest[:8].hex(),
    )


def _rotated(digits: str) -> str:
    """Return hex digits, each rotated by 8."""
    return digits.translate(_ROTATED)


def _digits(id: str) -> str:
    """Return the 32 hex digits of an id."""
    return id[2:].replace("-", "")


def _format(prefix: str, digits: str) -> str:
    return f"{prefix}-{digits[:8]}-{digits[8:16]}-{digits[16:20]}-{digits[20:26]}-{digits[26:32]}"


@lru_cache(maxsize=16384)
def check_id(id: str, collection: str | None = None) -> str:
    """Return `id` when it is well formed (and in `collection`); `BadRequest` otherwise.

    `NotFound` for an id of schema v1, which was never made.
    """
    known = _ID.fullmatch(id) is not None
    if not known and _OLD_ID.fullmatch(id) is None:
        raise BadRequest(f"{short_repr(id)} is not an object id.")
    if collection is not None and COLLECTIONS[id[0]] != collection:
        raise BadRequest(f"{short_repr(id)} is not the id of one of the {collection}.")
    if not known:
        raise NotFound(f"There is no object {short_repr(id)}: it is an id of an older schema.")
    return id


def collection_of(id: str) -> str:
    """Return `groups`, `datasets` or `datatypes`."""
    return COLLECTIONS[id[0]]


ID_DOMAIN = slice(2, 19)
"""Where an id has what all ids of its domain share."""


def domain_hex(id: str) -> str:
    """Return the 16 hex digits that all ids of a domain share."""
    return id[2:10] + id[11:19]


def moved_id(id: str, root: str, to: str) -> str:
    """Return the id that an object of the domain of `root` has in that of `to`, a copy that keeps second halves."""
    return to if id == root else id[:2] + to[ID_DOMAIN] + id[19:]


def heads_of(record: dict[str, str | list[str]]) -> list[str]:
    """Return the root groups of the domains that a clone or a snapshot began as: references name their objects."""
    return [head for head in (record.get("head"), *record.get("before", ())) if isinstance(head, str)]


def is_root(id: str) -> bool:
    digits = _digits(id)
    return id[0] == "g" and digits[16:] == _rotated(digits[:16])


def summary_id(root: str) -> str:
    """Return the id of a domain's summary, which is a record too: `s-<uuid1>`."""
    return f"s-{root[2:19]}"


@lru_cache(maxsize=16384)
def storage_key(id: str) -> str:
    """Return the key of a record: of an object id, a summary's, a job's, or a domain path that begins with `/`."""
    if id.startswith("/"):
        return f"{id[1:]}/.domain.json".lstrip("/")
    if id.startswith("s-"):
        return f"db/{id[2:]}/.info.json"
    if is_job_id(id):
        return job_key(id)
    digits = _digits(id)
    base = f"db/{digits[:8]}-{digits[8:16]}"
    if is_root(id):
        return f"{base}/.group.json"
    kind = {"g": "group", "d": "dataset", "t": "datatype"}[id[0]]
    return f"{base}/{id[0]}/{digits[16:20]}-{digits[20:26]}-{digits[26:32]}/.{kind}.json"


def domain_prefix(root: str) -> str:
    """Return the prefix of every key of a domain's objects."""
    digits = domain_hex(root)
    return f"db/{digits[:8]}-{digits[8:]}/"


@lru_cache(maxsize=16384)
def chunk_prefix(dataset: str) -> str:
    """Return the prefix of a dataset's keys: its record's and its chunks'."""
    return storage_key(dataset).removesuffix(".dataset.json")


def tree_prefix(id: str) -> str:
    """Return the prefix of what belongs to a root group's domain, or to a dataset."""
    return chunk_prefix(id) if id.startswith("d-") else domain_prefix(id)


def map_key(dataset: str) -> str:
    """Return the key of a dataset's chunk map.

    It has so many components that no server of schema v2 takes it for a chunk's, which has five or six; and it is
    below the dataset's prefix, so that it goes with the chunks.
    """
    return f"{chunk_prefix(dataset)}{MAP_FOLDER}v1/rows"


def is_map_key(key: str) -> bool:
    """Say whether a key below a domain's prefix is a chunk map's."""
    return f"/{MAP_FOLDER}" in key


def delta_prefix(key: str) -> str:
    """Return the prefix of the deltas of the record at `key`; they sort after the record.

    Their keys have seven components, as that of a map, for the same reasons.
    """
    folder = key.rpartition("/")[0]
    levels = "v1" if folder.count("/") > 1 else "v1/top/group"
    return f"{folder}/{DELTA_FOLDER}{levels}/"


def delta_key(key: str, token: str) -> str:
    """Return the key of the delta with this token of the record at `key`."""
    return f"{delta_prefix(key)}{token}.json"


def is_delta_key(key: str) -> bool:
    """Say whether a key below a domain's prefix, or its rest after that, is that of a record's delta."""
    return f"/{DELTA_FOLDER}" in f"/{key}"


def chunk_of_key(key: str) -> tuple[int, ...] | None:
    """Return the scaled coordinates in a chunk's key, signed, None when the key is not a chunk's."""
    name = key.rpartition("/")[2]
    return tuple(map(int, name.split("_"))) if _CHUNK_NAME.fullmatch(name) else None


def deletion_key(id: str) -> str:
    """Return the key of the note that the domain of a root, or a dataset, is being deleted."""
    return DELETION_FOLDER + id


def id_of_deletion_key(key: str) -> str | None:
    """Return the root's or dataset's id in the key of a note, None when it has another name."""
    id = key.removeprefix(DELETION_FOLDER)
    return id if _ID.fullmatch(id) and (id[0] == "d" or is_root(id)) else None


def tree_of_key(key: str) -> tuple[str, str | None] | None:
    """Return the root and, of a key below a dataset, the dataset whose tree a key is in; None for any other key."""
    match = _TREE_KEY.match(key)
    if match is None:
        return None
    first, second = match[1].replace("-", ""), match[2]
    dataset = None if second is None else _format("d", first + second.replace("-", ""))
    return _format("g", first + _rotated(first)), dataset


# --- jobs -------------------------------------------------------------------------------------------


def new_job_id(owner: str, clock: Clock) -> str:
    """Return an id for a job of a user: those of one user begin alike, and sort by when they were made."""
    return f"{JOB_PREFIX}{_owner_digits(owner)}-{int(clock.now() * 1000):012x}-{clock.token(8).hex()}"


def is_job_id(id: str) -> bool:
    """Say whether the id of a record is a job's."""
    return id.startswith(JOB_PREFIX)


def check_job_id(id: str) -> str:
    """Return a job's id; `NotFound` for text that is no id."""
    if _JOB_ID.fullmatch(id) is None:
        raise NotFound(f"There is no job {id[:80]!r}.")
    return id


def job_key(id: str) -> str:
    """Return the key of a job's record."""
    return f"{JOB_FOLDER}{id.removeprefix(JOB_PREFIX)}{JOB_SUFFIX}"


def job_id_of_key(key: str) -> str:
    """Return the id of the job whose record has this key."""
    return JOB_PREFIX + key.removeprefix(JOB_FOLDER).removesuffix(JOB_SUFFIX)


def job_key_prefix(owner: str) -> str:
    """Return the prefix of the keys of a user's jobs; it has a hash of the name, which another user may share."""
    return f"{JOB_FOLDER}{_owner_digits(owner)}-"


def _owner_digits(owner: str) -> str:
    return blake2b(owner.encode(), digest_size=6).hexdigest()


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def check_bucket_name(name: str) -> str:
    """Return a bucket's name; `BadRequest` for what no bucket can be called."""
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise BadRequest(f"{name[:80]!r} is not a bucket's name: it has letters, digits, '_', '.' and '-'.")
    return name
