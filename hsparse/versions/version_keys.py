"""Keys of the stored history of domains, and ids of the trees in which snapshots are read.

    db/<u1>/.versions.json                              the note: which snapshots the domain has
    db/<u1>/.history/v1/<token>/<rest of key>/e<epoch>  an object as it was before its first change in an epoch
    db/.bases/<u1 of the tree>.json                     which snapshot a tree shows

The history's keys have more components than any object's key in schema v2, so no server takes one for an object. An
empty copy means that the object did not exist: no object of a domain is empty.
"""

from __future__ import annotations

import re
from hashlib import sha256

import orjson

from hsparse.dn.record_form import add_checksum, has_checksum
from hsparse.model.ids import chunk_of_key, domain_prefix, is_delta_key, root_id
from hsparse.versions.moved_ids import CHECKSUM_LENGTH
from hsparse.versions.snapshot_path import parsed_snapshot

ABSENT = b""
"""The content of a copy that marks an object as not existing."""
MARK = bytes.fromhex("b45e")
"""The first bytes of the ids of a snapshot's tree; ids of few other domains begin with these bytes."""
CLONE_MARK = bytes.fromhex("c10e")
"""The first bytes of the ids of a clone."""
TREE = f"db/{MARK.hex()}"
BASES = "db/.bases/"
HALF = slice(3, 20)
"""The part of a key below `db/` that the ids of its domain share."""
NOTE = ".versions.json"
HISTORY = ".history/"
_OBJECT = re.compile("db/[0-9a-f]{8}-[0-9a-f]{8}/.+")
_NOT_KEPT = (HISTORY, NOTE, ".clone/", ".info.json", ".summary.json")
_RECORD = "/.domain.json"
_DIGITS = 9


def is_object_key(key: str) -> bool:
    """Return whether a key is below the prefix of a domain's objects."""
    return _OBJECT.fullmatch(key) is not None


def rest_of(key: str) -> str:
    """Return the part of an object's key after the prefix of its domain's objects."""
    return key[21:]


def is_kept(rest: str) -> bool:
    """Return whether an object belongs to its domain's state, and is not derived from it or part of its history."""
    return not rest.startswith(_NOT_KEPT) and "/.map/" not in rest


def chunk_of(rest: str) -> tuple[str, tuple[int, ...]] | None:
    """Return a pair for a chunk's key (the dataset record's key, scaled coordinates), or None for any other key."""
    scaled = chunk_of_key(rest) if rest.startswith("d/") else None
    return None if scaled is None else (f"{'/'.join(rest.split('/', 2)[:2])}/.dataset.json", scaled)


def note_key(root: str) -> str:
    """Return the key of the note that lists the snapshots of a root group's domain."""
    return domain_prefix(root) + NOTE


def history_prefix(root: str, token: str) -> str:
    """Return the prefix of the copies of a domain's objects for one series of snapshots, which `token` names."""
    return f"{domain_prefix(root)}{HISTORY}v1/{token}/"


def copy_key(prefix: str, rest: str, epoch: int) -> str:
    """Return the key of an object's copy as of the snapshot `epoch`."""
    return f"{prefix}{rest}/e{epoch:0{_DIGITS}d}"


def parsed_copy(prefix: str, key: str) -> tuple[str, int]:
    """Return a pair for the copy at `key`: the copied object's key, without the domain's prefix, and the epoch."""
    rest, _, epoch = key.removeprefix(prefix).rpartition("/")
    return rest, int(epoch[1:])


def tree_root(root: str, token: str, number: int) -> str:
    """Return the root group's id in the tree of a snapshot."""
    return root_id(MARK + sha256(f"{root} {token} {number}".encode()).digest()[:6])


def base_key(tree: str) -> str:
    """Return the key of the object that says which snapshot a tree shows; `tree` is the root group's id in the tree."""
    return f"{BASES}{tree[2:19]}.json"


def snapshot_of_key(key: str) -> tuple[str, int] | None:
    """Return a pair for the key of a snapshot's domain record (path without leading slash, number), or None."""
    if "@" not in key or not key.endswith(_RECORD):
        return None
    return parsed_snapshot(key.removesuffix(_RECORD))


def to_trim(data: bytes, rest: str) -> bytes:
    """Return the JSON of an object for a clone; a dataset that can grow is marked to be trimmed before it grows.

    The dataset may have grown while the snapshot was taken, so a chunk may be newer than the record.
    """
    if not rest.startswith("d/") or (b'"maxdims"' not in data and not is_delta_key(rest)):
        return data
    checked = has_checksum(data)
    data = data[:-CHECKSUM_LENGTH] if checked else bytes(data).rstrip()[:-1]
    if is_delta_key(rest):
        found = orjson.loads(data + b"}")
        found["fields"]["put"]["trim"] = True
        data = orjson.dumps(found)[:-1]
    else:
        data += b',"trim":true'
    return add_checksum(data + b"}") if checked else data + b"}"
