"""Keys of what is kept of the past, and ids of the trees in which it is read.

    db/<u1>/.versions.json                              the note: which snapshots the domain has
    db/<u1>/.history/v1/<token>/<rest of key>/e<epoch>  an object as it was before its first change in an epoch
    db/.bases/<u1 of the tree>.json                     which snapshot a tree shows

The history's keys have so many components that no server of schema v2 takes one for an object's. An empty object stands
for one that was not there: no object of a domain is empty.
"""

from __future__ import annotations

import re
from hashlib import sha256

import orjson

from hsparse.dn.record_form import add_checksum, has_checksum
from hsparse.model.ids import chunk_of_key, domain_prefix, is_delta_key, root_id
from hsparse.versions.snapshot_path import parsed_snapshot

ABSENT = b""
"""The bytes of the mark that an object was not there."""
MARK = bytes.fromhex("b45e")
"""What the ids of a snapshot's tree begin with; those of few other domains do."""
CLONE_MARK = bytes.fromhex("c10e")
"""What the ids of a clone begin with."""
TREE = f"db/{MARK.hex()}"
BASES = "db/.bases/"
HALF = slice(3, 20)
"""Where a key below `db/` has what the ids of its domain share."""
NOTE = ".versions.json"
HISTORY = ".history/"
_OBJECT = re.compile("db/[0-9a-f]{8}-[0-9a-f]{8}/.+")
_NOT_KEPT = (HISTORY, NOTE, ".clone/", ".info.json", ".summary.json")
_CHECKSUM = len(b',\n"crc32":"01234567"}')
_RECORD = "/.domain.json"
_DIGITS = 9


def is_object_key(key: str) -> bool:
    """Say whether a key is below the prefix of a domain's objects."""
    return _OBJECT.fullmatch(key) is not None


def rest_of(key: str) -> str:
    """Return what comes after the prefix of a domain's objects in the key of one."""
    return key[21:]


def is_kept(rest: str) -> bool:
    """Say whether an object belongs to its domain's state: neither derived from it, nor of its past."""
    return not rest.startswith(_NOT_KEPT) and "/.map/" not in rest


def chunk_of(rest: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the key of the dataset's record (its rest) and the scaled coordinates of a chunk; None for no chunk."""
    scaled = chunk_of_key(rest) if rest.startswith("d/") else None
    return None if scaled is None else (f"{'/'.join(rest.split('/', 2)[:2])}/.dataset.json", scaled)


def note_key(root: str) -> str:
    """Return the key of the note of a root group's domain."""
    return domain_prefix(root) + NOTE


def history_prefix(root: str, token: str) -> str:
    """Return the prefix of all that is kept of the past in one series of snapshots."""
    return f"{domain_prefix(root)}{HISTORY}v1/{token}/"


def copy_key(prefix: str, rest: str, epoch: int) -> str:
    """Return the key of an object as it was at the snapshot `epoch`."""
    return f"{prefix}{rest}/e{epoch:0{_DIGITS}d}"


def parsed_copy(prefix: str, key: str) -> tuple[str, int]:
    """Return the rest of the key and the epoch of what is kept at `key`."""
    rest, _, epoch = key.removeprefix(prefix).rpartition("/")
    return rest, int(epoch[1:])


def tree_root(root: str, token: str, number: int) -> str:
    """Return the root group's id in the tree of a snapshot."""
    return root_id(MARK + sha256(f"{root} {token} {number}".encode()).digest()[:6])


def base_key(tree: str) -> str:
    """Return the key of what says which snapshot a tree shows, by the root group's id in it."""
    return f"{BASES}{tree[2:19]}.json"


def snapshot_of_key(key: str) -> tuple[str, int] | None:
    """Return what `parsed_snapshot` does for the key of a domain's record; the path is without its first slash."""
    if "@" not in key or not key.endswith(_RECORD):
        return None
    return parsed_snapshot(key.removesuffix(_RECORD))


def moved(data: bytes, root: str, to: str) -> bytes:
    """Return the JSON of an object with the ids of another tree: `root` is the root group's here, `to` there."""
    if has_checksum(data):
        return add_checksum(_moved(data[:-_CHECKSUM] + b"}", root, to))
    return _moved(data, root, to)


def to_trim(data: bytes, rest: str) -> bytes:
    """Return the JSON of an object for a clone: what a dataset has outside its extent is erased before it grows.

    Beside the snapshot it may have grown, and a chunk may be newer than the record.
    """
    if not rest.startswith("d/") or (b'"maxdims"' not in data and not is_delta_key(rest)):
        return data
    checked = has_checksum(data)
    data = data[:-_CHECKSUM] if checked else bytes(data).rstrip()[:-1]
    if is_delta_key(rest):
        found = orjson.loads(data + b"}")
        found["fields"]["put"]["trim"] = True
        data = orjson.dumps(found)[:-1]
    else:
        data += b',"trim":true'
    return add_checksum(data + b"}") if checked else data + b"}"


def _moved(data: bytes, root: str, to: str) -> bytes:
    data = bytes(data).replace(root.encode(), to.encode())
    return data.replace(root[2:19].encode(), to[2:19].encode())
