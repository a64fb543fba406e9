"""File-backed datasets, whose data stays in HDF5 files of the store: the dimensions of their chunks, and their files.

Their layouts are the three reference layouts of HSDS. A *piece* is one byte range of a file: a filtered chunk of the
file or, for a contiguous dataset, the elements of one chunk of the grid. A chunk of the grid has one piece, or several
if the file's chunks are small (HSDS calls such grid chunks hyper chunks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hsparse.errors import BadRequest, Forbidden
from hsparse.model.dataspace import enlarge
from hsparse.model.ids import check_bucket_name
from hsparse.model.short_text import short_repr

CONTIGUOUS_REF = "H5D_CONTIGUOUS_REF"
CHUNKED_REF = "H5D_CHUNKED_REF"
CHUNKED_REF_INDIRECT = "H5D_CHUNKED_REF_INDIRECT"
FILE_BACKED = (CONTIGUOUS_REF, CHUNKED_REF, CHUNKED_REF_INDIRECT)
SLAB_BYTES = 4 * 1024 * 1024
"""The most bytes of a grid chunk of a contiguous dataset; such a chunk is one range of the file."""
GROUP_BYTES = 128 * 1024
"""The bytes to which small pieces are grouped: enough to amortize the cost per chunk, with little unneeded reading.

A chunk costs about 0.1 ms, a piece of 4 KB 0.06 ms. Reads may combine pieces of several chunks.
"""
MAX_PIECES = 1024
"""The approximate maximum of pieces in one chunk of the grid."""
SCHEMES = ("s3://", "file://")
"""URI schemes of HSDS and its clients; a bucket and a key follow. A path without a scheme may omit the bucket."""
MAX_DOMAIN_PATH = 900
"""The most bytes of a domain's path: followed by `/.domain.json` it must fit an S3 key of 1024 bytes."""
OBJECTS_FOLDER = "db"
"""The first component of the keys of domains' objects; no user may link a dataset to a file there."""
MAX_URI = 2048
Json = dict[str, Any]
Dims = tuple[int, ...]


# --- layouts ----------------------------------------------------------------------------------------


def file_backed_layout(record: Json) -> Json | None:
    """Return the layout that locates a dataset's data in files, or None if the dataset is not file-backed."""
    layout = (record.get("creationProperties") or {}).get("layout")
    return layout if isinstance(layout, dict) and layout.get("class") in FILE_BACKED else None


SERVED = "served"
"""The creation property of datasets in served files: their chunks have no objects and are built when they are read.

The same key in the record of a served file's domain, or of a folder above it, says that the domain or folder cannot be
changed.
"""


SIZE = "size"
"""The key, in the record of a served file's domain, of the file's size in bytes."""
PLACE = "place"
"""The key, in the record of a served file's domain or folder, of the path of the folder whose ACLs apply to it."""


def has_no_objects(record: dict[str, Any]) -> bool:
    """Return whether a dataset is in a served file; chunks of such a dataset are not stored as objects."""
    return bool((record.get("creationProperties") or {}).get(SERVED))


def is_file_backed(record: Json) -> bool:
    """Return whether the dataset's data stays in files; such a dataset is read-only."""
    return file_backed_layout(record) is not None


def piece_dims(layout: Json, grid: Dims) -> Dims:
    """Return the dimensions of a piece, in elements; raise `BadRequest` if they do not divide the grid's chunk."""
    if layout["class"] == CONTIGUOUS_REF:
        return grid
    piece = tuple(layout.get("hyper_dims") or layout.get("dims") or ())
    if len(piece) != len(grid) or any(p < 1 or g % p for p, g in zip(piece, grid, strict=True)):
        raise BadRequest(f"The file's chunks {list(piece)} do not divide the layout's chunks {list(grid)}.")
    return piece


def slab_dims(dims: Dims, item_size: int) -> Dims:
    """Return chunk dimensions for a contiguous dataset: each chunk is one byte range of at most `SLAB_BYTES`.

    The last dimensions of a chunk have the full extent, at most one dimension has less, and all before have length 1.
    """
    chunk = [1] * len(dims)
    room = max(1, SLAB_BYTES // item_size)
    for dim in reversed(range(len(dims))):
        chunk[dim] = max(1, min(dims[dim], room))
        if chunk[dim] < dims[dim]:
            break
        room = max(1, room // chunk[dim])
    return tuple(chunk)


def grouped_dims(piece: Dims, limits: tuple[int | None, ...], item_size: int) -> Dims:
    """Return the dimensions of a grid chunk, which groups pieces up to `GROUP_BYTES` or about `MAX_PIECES` pieces."""
    size = prod(piece) * item_size
    counts = tuple(None if limit is None else -(-limit // p) for limit, p in zip(limits, piece, strict=True))
    factors = enlarge((1,) * len(piece), counts, size, min(GROUP_BYTES, size * MAX_PIECES))
    return tuple(p * factor for p, factor in zip(piece, factors, strict=True))


# --- files ------------------------------------------------------------------------------------------


NO_HEAD = -1
"""The value of `BackingFile.head` that matches no file."""


@dataclass(frozen=True, slots=True)
class BackingFile:
    """The backing file of a dataset: its URI and, if the file was inspected at creation, its state.

    `etag` is the file's etag (empty if not inspected). `head` is the CRC-32 of its first bytes, which identifies a copy
    of the file with another etag; `NO_HEAD` accepts no other etag. If the file was `unseen` (missing or in a bucket
    that was not served) when the dataset was created, every reader needs the right to read the file.
    """

    uri: str
    etag: str = ""
    head: int = 0
    unseen: bool = False

    def unchanged(self) -> BackingFile:
        """Return this backing file with `NO_HEAD`, so that no other etag is accepted; unchanged if `etag` is empty."""
        return replace(self, head=NO_HEAD) if self.etag else self


def file_reference(uri: str, bucket: str) -> tuple[str, str]:
    """Return a pair: the bucket and the key that `uri` names. `bucket` is the default bucket.

    `uri` is `s3://bucket/key`, `file://bucket/key`, `bucket/key`, or a key alone. A path without a scheme begins with
    the bucket only if its first component is the default bucket's name. Raises `BadRequest` for other schemes, for
    paths that are absolute or contain `.` or `..`, and for keys that are reserved for the server.
    """
    path = uri
    scheme = next((scheme for scheme in SCHEMES if uri.startswith(scheme)), "")
    if scheme:
        first, _, path = uri.removeprefix(scheme).partition("/")
        bucket = check_bucket_name(first)
    elif "://" in uri:
        raise BadRequest(
            f"The file {short_repr(uri)} is not in a bucket: name it by {SCHEMES[0]}{bucket}/KEY or KEY."
        )
    elif uri.startswith(f"{bucket}/"):
        path = uri.removeprefix(f"{bucket}/")
    _check(uri, path)
    return bucket, path


def file_key(uri: str, bucket: str) -> str:
    """Return the key of the file that `uri` names in `bucket`, see `file_reference`.

    Raises `Forbidden` if `uri` names another bucket.
    """
    named, key = file_reference(uri, bucket)
    if named != bucket:
        raise Forbidden(
            f"The file {short_repr(uri)} is in the bucket {named!r}, which is not served: name it in --bucket."
        )
    return key


def _check(uri: str, path: str) -> None:
    if len(uri) > MAX_URI:
        raise BadRequest(f"The file's URI has {len(uri)} characters; the limit is {MAX_URI}.")
    if path.startswith("/"):
        raise BadRequest(
            f"The file {short_repr(uri)} has an absolute path; name it relative to the store's root."
        )
    components = path.split("/")
    if not all(components):
        raise BadRequest(
            f"The file {short_repr(uri)} has an empty component in its path: remove the second slash."
        )
    if ".." in components or "." in components:
        raise BadRequest(
            f"The file {short_repr(uri)} has '.' or '..' in its path; name it from the store's root."
        )
    # On a case-insensitive file system DB is the same directory as db.
    if components[0].casefold() == OBJECTS_FOLDER or any(
        component.startswith(".") for component in components
    ):
        raise BadRequest(f"{short_repr(uri)} is no file to link to: the server keeps its own objects there.")
