"""Ids of objects and jobs, the store keys derived from them, and names of buckets.

Object ids and keys follow HSDS's schema v2, as in `h5json.objid`. A job's key begins with `db/.jobs/`, which no server
takes for the key of a domain or an object.

A bucket is an S3 bucket, or a directory with the bucket's name.
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
"""Ids of schema v1: a prefix and a UUID. No object of hsparse has such an id."""
_TREE_KEY = re.compile("db/([0-9a-f]{8}-[0-9a-f]{8})/(?:d/([0-9a-f]{4}-[0-9a-f]{6}-[0-9a-f]{6})/)?")
_RECORD_KEY = re.compile(
    r"db/([0-9a-f]{8}-[0-9a-f]{8})/(?:([gdt])/([0-9a-f]{4}-[0-9a-f]{6}-[0-9a-f]{6})/)?\.[a-z]+\.json"
)
_ROTATED = str.maketrans("0123456789abcdef", "89abcdef01234567")
_JOB_ID = re.compile("j-[0-9a-f]{12}-[0-9a-f]{12}-[0-9a-f]{16}")
_CHUNK_NAME = re.compile("-?[0-9]+(?:_-?[0-9]+)*")


def new_root_id(clock: Clock) -> str:
    """Return a new root group's id: its second half is its first half with each hex digit rotated by 8."""
    return root_id(clock.token(8))


def root_id(half: bytes) -> str:
    """Return the id of the root group whose first 8 bytes are `half`."""
    return _format("g", half.hex() + _rotated(half.hex()))


def new_id(collection: str, root: str, clock: Clock) -> str:
    """Return a new random id in `collection` (`groups`, `datasets`, `datatypes`) of the domain of `root`."""
    return derived_id(collection, root, clock.token(8))


def derived_id(collection: str, root: str, digest: bytes) -> str:
    """Return the id in `collection` of the domain of `root` whose second half is the first 8 bytes of `digest`."""
    return _format(
        {"groups": "g", "datasets": "d", "datatypes": "t"}[collection],
        domain_hex(root) + digest[:8].hex(),
    )


def _rotated(digits: str) -> str:
    """Return `digits` with each hex digit rotated by 8."""
    return digits.translate(_ROTATED)


def _digits(id: str) -> str:
    """Return the 32 hex digits of an id."""
    return id[2:].replace("-", "")


def _format(prefix: str, digits: str) -> str:
    return f"{prefix}-{digits[:8]}-{digits[8:16]}-{digits[16:20]}-{digits[20:26]}-{digits[26:32]}"


@lru_cache(maxsize=16384)
def check_id(id: str, collection: str | None = None) -> str:
    """Return `id` if it is well formed (and in `collection`); raise `BadRequest` otherwise.

    Raises `NotFound` for an id of schema v1, because no object has one.
    """
    known = _ID.fullmatch(id) is not None
    if not known and _OLD_ID.fullmatch(id) is None:
        raise BadRequest(f"{short_repr(id)} is not an object id: expected g-, d- or t- and 32 hex digits.")
    if collection is not None and COLLECTIONS[id[0]] != collection:
        raise BadRequest(f"{short_repr(id)} is not the id of one of the {collection}.")
    if not known:
        raise NotFound(f"There is no object {short_repr(id)}: this id is of the older schema v1.")
    return id


def collection_of(id: str) -> str:
    """Return the collection that an id belongs to: `groups`, `datasets` or `datatypes`."""
    return COLLECTIONS[id[0]]


ID_DOMAIN = slice(2, 19)
"""The slice of an id that is the same for all ids of a domain."""


def domain_hex(id: str) -> str:
    """Return the 16 hex digits that all ids of a domain share."""
    return id[2:10] + id[11:19]


def second_half(id: str) -> bytes:
    """Return the second half of an id (8 bytes), which distinguishes the id from all other ids of its domain."""
    return bytes.fromhex(_digits(id)[16:])


def moved_id(id: str, root: str, to: str) -> str:
    """Return the id that the object `id` gets when the domain of `root` is copied to a domain with the root `to`."""
    return to if id == root else id[:2] + to[ID_DOMAIN] + id[19:]


def heads_of(record: dict[str, str | list[str]]) -> list[str]:
    """Return the root ids of the domains that a clone or snapshot was copied from; references may contain them."""
    return [head for head in (record.get("head"), *record.get("before", ())) if isinstance(head, str)]


def is_root(id: str) -> bool:
    digits = _digits(id)
    return id[0] == "g" and digits[16:] == _rotated(digits[:16])


def summary_id(root: str) -> str:
    """Return the id of the record with a domain's summary, `s-<uuid1>`."""
    return f"s-{root[2:19]}"


@lru_cache(maxsize=16384)
def storage_key(id: str) -> str:
    """Return the key of a record, given an object's, summary's or job's id, or a domain path that begins with `/`."""
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
    """Return the prefix of the keys of all objects in the domain of `root`."""
    digits = domain_hex(root)
    return f"db/{digits[:8]}-{digits[8:]}/"


@lru_cache(maxsize=16384)
def chunk_prefix(dataset: str) -> str:
    """Return the common prefix of the keys of a dataset's record and chunks."""
    return storage_key(dataset).removesuffix(".dataset.json")


def tree_prefix(id: str) -> str:
    """Return the prefix of all keys of a dataset, or of the domain of a root group."""
    return chunk_prefix(id) if id.startswith("d-") else domain_prefix(id)


def map_key(dataset: str) -> str:
    """Return the key of a dataset's chunk map.

    The key has seven components, so no server of schema v2 takes it for the key of a chunk, which has five or six. It
    is below the dataset's prefix, so it is deleted together with the chunks.
    """
    return f"{chunk_prefix(dataset)}{MAP_FOLDER}v1/rows"


def is_map_key(key: str) -> bool:
    """Return whether a key below a domain's prefix is the key of a chunk map."""
    return f"/{MAP_FOLDER}" in key


def delta_prefix(key: str) -> str:
    """Return the prefix of the keys of the deltas of the record at `key`; these keys sort after `key`.

    A delta has the latest changes of a large record, see `hsparse.dn.record_objects`. Keys of deltas have seven
    components, for the same reason as `map_key`.
    """
    folder = key.rpartition("/")[0]
    levels = "v1" if folder.count("/") > 1 else "v1/top/group"
    return f"{folder}/{DELTA_FOLDER}{levels}/"


def delta_key(key: str, token: str) -> str:
    """Return the key of the delta that has `token` and belongs to the record at `key`."""
    return f"{delta_prefix(key)}{token}.json"


def is_delta_key(key: str) -> bool:
    """Return whether a key below a domain's prefix, with or without that prefix, is the key of a record's delta."""
    return f"/{DELTA_FOLDER}" in f"/{key}"


def chunk_of_key(key: str) -> tuple[int, ...] | None:
    """Return the (signed) scaled coordinates in the key of a chunk, or None if `key` is not the key of a chunk."""
    name = key.rpartition("/")[2]
    return tuple(map(int, name.split("_"))) if _CHUNK_NAME.fullmatch(name) else None


def deletion_key(id: str) -> str:
    """Return the key of the marker that the dataset `id`, or the domain of the root `id`, is being deleted."""
    return DELETION_FOLDER + id


def id_of_deletion_key(key: str) -> str | None:
    """Return the root's or dataset's id in the key of a deletion marker, or None for any other key."""
    id = key.removeprefix(DELETION_FOLDER)
    return id if _ID.fullmatch(id) and (id[0] == "d" or is_root(id)) else None


def tree_of_key(key: str) -> tuple[str, str | None] | None:
    """Return a pair: the ids of the root and of the dataset (or None) that `key` is below; None if there is no root."""
    match = _TREE_KEY.match(key)
    if match is None:
        return None
    first, second = match[1].replace("-", ""), match[2]
    dataset = None if second is None else _format("d", first + second.replace("-", ""))
    return _format("g", first + _rotated(first)), dataset


def id_of_key(key: str) -> str | None:
    """Return the id of the object whose record is at `key`, or None if `key` is not the key of a record."""
    match = _RECORD_KEY.fullmatch(key)
    if match is None:
        return None
    first = match[1].replace("-", "")
    id = _format(match[2] or "g", first + (match[3].replace("-", "") if match[3] else _rotated(first)))
    return id if storage_key(id) == key else None


def new_job_id(owner: str, clock: Clock) -> str:
    """Return a new job id; the ids of one user's jobs share a prefix and sort by creation time."""
    return f"{JOB_PREFIX}{_owner_digits(owner)}-{int(clock.now() * 1000):012x}-{clock.token(8).hex()}"


def is_job_id(id: str) -> bool:
    """Return whether `id` has the prefix of job ids."""
    return id.startswith(JOB_PREFIX)


def check_job_id(id: str) -> str:
    """Return `id` if it is a well-formed job id; raise `NotFound` otherwise."""
    if _JOB_ID.fullmatch(id) is None:
        raise NotFound(f"There is no job {id[:80]!r}.")
    return id


def job_key(id: str) -> str:
    """Return the key of a job's record."""
    return f"{JOB_FOLDER}{id.removeprefix(JOB_PREFIX)}{JOB_SUFFIX}"


def job_id_of_key(key: str) -> str:
    """Return the id of the job whose record is at `key`."""
    return JOB_PREFIX + key.removeprefix(JOB_FOLDER).removesuffix(JOB_SUFFIX)


def job_key_prefix(owner: str) -> str:
    """Return the prefix of the keys of a user's jobs; it has a 48-bit hash of the name, so users may share a prefix."""
    return f"{JOB_FOLDER}{_owner_digits(owner)}-"


def _owner_digits(owner: str) -> str:
    return blake2b(owner.encode(), digest_size=6).hexdigest()


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def check_bucket_name(name: str) -> str:
    """Return `name` if it is a valid bucket name; raise `BadRequest` otherwise."""
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise BadRequest(f"{name[:80]!r} is not a bucket's name: use letters, digits, '_', '.' and '-'.")
    return name
