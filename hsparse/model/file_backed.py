"""File-backed datasets, whose data stays in HDF5 files of the store: their layouts, and which files they may name.

The layouts are the three reference layouts of HSDS. A *piece* is what lies in one place of a file: a chunk of the
file, as its filters made it, or, of a contiguous dataset, what belongs to one chunk of the grid. A chunk of the grid
has one piece or, where the file's chunks are small, several (HSDS calls these hyper chunks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hsparse.errors import BadRequest, Forbidden
from hsparse.model.dataspace import enlarge
from hsparse.model.datatype import Datatype
from hsparse.model.ids import check_bucket_name
from hsparse.model.short_text import short_repr

CONTIGUOUS_REF = "H5D_CONTIGUOUS_REF"
CHUNKED_REF = "H5D_CHUNKED_REF"
CHUNKED_REF_INDIRECT = "H5D_CHUNKED_REF_INDIRECT"
FILE_BACKED = (CONTIGUOUS_REF, CHUNKED_REF, CHUNKED_REF_INDIRECT)
SLAB_BYTES = 4 * 1024 * 1024
"""What a chunk of a contiguous dataset is cut to: one range of the file."""
GROUP_BYTES = 128 * 1024
"""What pieces are put together to: enough for a chunk's own cost not to count, as little as is read for nothing.

A chunk costs about 0.1 ms, a piece of 4 KB 0.06 ms. Pieces are read together beyond a chunk's bounds.
"""
MAX_PIECES = 1024
"""The most pieces that are put together to one chunk of the grid."""
MAX_ENTRIES = 10_000
"""The most pieces a record may list; more belong into a chunk table."""
SCHEMES = ("s3://", "file://")
"""Before them HSDS and its clients write a bucket and a key; a plain path may begin with the bucket or not."""
OBJECTS_FOLDER = "db"
"""The store's prefix of domains' objects, which no dataset may be linked to, whatever the rights to them are."""
MAX_URI = 2048
Json = dict[str, Any]
Dims = tuple[int, ...]


# --- layouts ----------------------------------------------------------------------------------------


def file_backed_layout(record: Json) -> Json | None:
    """Return the layout that says where a dataset's data is in files, None when it is in chunks of its own."""
    layout = (record.get("creationProperties") or {}).get("layout")
    return layout if isinstance(layout, dict) and layout.get("class") in FILE_BACKED else None


SERVED = "served"
"""The creation property of datasets whose chunks have no objects: they are made of a served file when they are read.

In the records of the domains of such files, and of their folders, it says that nobody changes them.
"""


def has_no_objects(record: dict[str, Any]) -> bool:
    """Say whether the chunks of a dataset are in a file that is served, so that nothing but the server reads them."""
    return bool((record.get("creationProperties") or {}).get(SERVED))


def is_file_backed(record: Json) -> bool:
    """Say whether the dataset's data stays in files, so that it can be read and not be written."""
    return file_backed_layout(record) is not None


def piece_dims(layout: Json, grid: Dims) -> Dims:
    """Return the dimensions of a piece, in elements; `BadRequest` when they do not divide the grid's chunk."""
    if layout["class"] == CONTIGUOUS_REF:
        return grid
    piece = tuple(layout.get("hyper_dims") or layout.get("dims") or ())
    if len(piece) != len(grid) or any(p < 1 or g % p for p, g in zip(piece, grid, strict=True)):
        raise BadRequest(f"Chunks of {list(piece)} in a file cannot make up chunks of {list(grid)}.")
    return piece


def slab_dims(dims: Dims, item_size: int) -> Dims:
    """Return chunk dimensions for a contiguous dataset: each chunk is one range of at most `SLAB_BYTES`.

    One in the first dimensions, whole in the last ones.
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
    """Return the grid's chunk: as many pieces as it takes to have `GROUP_BYTES`, at most about `MAX_PIECES`."""
    size = prod(piece) * item_size
    counts = tuple(None if limit is None else -(-limit // p) for limit, p in zip(limits, piece, strict=True))
    factors = enlarge((1,) * len(piece), counts, size, min(GROUP_BYTES, size * MAX_PIECES))
    return tuple(p * factor for p, factor in zip(piece, factors, strict=True))


def parse_contiguous_ref(asked: Json, dims: Dims, datatype: Datatype, *, filtered: bool) -> Json:
    """Return the stored layout; `BadRequest` says what is wrong."""
    check_file_backed_type(datatype)
    if filtered:
        raise BadRequest(f"Data with filters is in chunks, not contiguous: use {CHUNKED_REF}.")
    size, needed = _number(asked, "size"), prod(dims) * datatype.guessed_size
    if size not in (0, needed):
        raise BadRequest(
            f"The layout's size is {size} bytes, but the dataset has {needed}: its type must be exactly that "
            "of the file, with what lies between fields."
        )
    return {
        "class": CONTIGUOUS_REF,
        "file_uri": file_uri(asked),
        "offset": _number(asked, "offset"),
        "size": size,
    }


def parse_chunked_ref(asked: Json, dims: Dims, datatype: Datatype, *, filtered: bool) -> Json:
    """Return the layout `H5D_CHUNKED_REF`, with chunk dimensions `dims`, as it is stored."""
    check_file_backed_type(datatype)
    chunks = asked.get("chunks")
    if not isinstance(chunks, dict):
        raise BadRequest(
            "The layout's chunks must give, for each chunk's scaled coordinates, its offset and size."
        )
    if len(chunks) > MAX_ENTRIES:
        raise BadRequest(
            f"The layout lists {len(chunks)} chunks; the limit is {MAX_ENTRIES}: use {CHUNKED_REF_INDIRECT}."
        )
    size = prod(dims) * datatype.guessed_size
    entries = {_name(key, len(dims)): _entry(key, value, size, filtered) for key, value in chunks.items()}
    return {"class": CHUNKED_REF, "file_uri": file_uri(asked), "dims": list(dims), "chunks": entries}


def parse_indirect_ref(asked: Json, dims: Dims, datatype: Datatype) -> Json:
    """Return the layout `H5D_CHUNKED_REF_INDIRECT`; that the table is one is not known here.

    Without `file_uri` the table names the file of each piece. `hyper_dims` are the dimensions of the file's
    chunks, where `dims` are already several of them.
    """
    check_file_backed_type(datatype)
    table = asked.get("chunk_table")
    if not isinstance(table, str):
        raise BadRequest(f"The layout's chunk_table must be the id of a dataset, not {short_repr(table)}.")
    layout: Json = {"class": CHUNKED_REF_INDIRECT, "dims": list(dims), "chunk_table": table}
    if asked.get("hyper_dims") is not None:
        piece = asked["hyper_dims"]
        if not isinstance(piece, list | tuple) or not all(_is_int(extent) for extent in piece):
            raise BadRequest(f"The layout's hyper_dims must be a list of integers, not {short_repr(piece)}.")
        layout["hyper_dims"] = list(piece)
        if len(piece) != len(dims) or not all(0 < extent < 2**32 for extent in piece):
            raise BadRequest(
                f"The layout's hyper_dims must have {len(dims)} positive numbers, not {short_repr(piece)}."
            )
    if asked.get("file_uri") is not None:
        layout["file_uri"] = file_uri(asked)
    return layout


def file_uri(asked: Json) -> str:
    """Return the URI of the file a layout names."""
    uri = asked.get("file_uri")
    if not isinstance(uri, str) or not uri:
        raise BadRequest(f"The layout's file_uri must name a file in the store, not {short_repr(uri)}.")
    return uri


def check_file_backed_type(datatype: Datatype) -> None:
    """Refuse types whose values in a file are addresses in that file."""
    if datatype.is_vlen or _refers(datatype.item):
        raise BadRequest(
            "Values of variable length and references are addresses inside their file: such a dataset cannot "
            "be linked to, only copied."
        )


def _refers(item: Any) -> bool:
    if isinstance(item, dict):
        return item.get("class") == "H5T_REFERENCE" or any(
            _refers(part) for key, part in item.items() if key != "name"
        )
    if isinstance(item, list):
        return any(map(_refers, item))
    return isinstance(item, str) and item.startswith("H5T_STD_REF")


def _name(key: str, rank: int) -> str:
    parts = key.split("_")
    if len(parts) != rank or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        raise BadRequest(f"{short_repr(key)} names no chunk: {rank} scaled coordinates, as 0_3, must.")
    return "_".join(str(int(part)) for part in parts)


def _entry(key: str, value: Any, size: int, filtered: bool) -> list[int]:
    """Return the offset, the size and, where it is given, the filter mask of a piece of `size` bytes."""
    right = isinstance(value, list | tuple) and len(value) in (2, 3) and all(_is_int(part) for part in value)
    if not right or not (0 <= value[0] < 2**62 and 0 <= value[1] < 2**62):
        raise BadRequest(
            f"The chunk {short_repr(key)} must have an offset and a size in bytes, not {short_repr(value)}."
        )
    if len(value) == 3 and not 0 <= value[2] < 2**32:
        raise BadRequest(f"The filter mask of the chunk {key} is {value[2]}; it must have 32 bits.")
    if not filtered and value[1] not in (0, size, size + 4):
        raise BadRequest(f"The chunk {key} has {value[1]} bytes; without filters a chunk has {size}.")
    return list(value)


def _number(asked: Json, name: str) -> int:
    value: Any = asked.get(name)
    if not _is_int(value) or not 0 <= value < 2**62:
        raise BadRequest(f"The layout's {name} must be a number of bytes, not {short_repr(value)}.")
    return int(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- files ------------------------------------------------------------------------------------------


NO_HEAD = -1
"""The checksum of no head."""


@dataclass(frozen=True, slots=True)
class BackingFile:
    """The backing file of a dataset: its URI and, where it was inspected at creation, its state.

    `etag` (empty: not looked at) is that of its state, `head` the CRC-32 of its first bytes, by which a file
    that was copied, and so has another etag, is known again; `NO_HEAD` where no other state will do. Of a file
    that was `unseen` at creation each reader needs the right to read it.
    """

    uri: str
    etag: str = ""
    head: int = 0
    unseen: bool = False

    def unchanged(self) -> BackingFile:
        """Return the file in no other state than that of its etag, if that is known."""
        return replace(self, head=NO_HEAD) if self.etag else self


def file_reference(uri: str, bucket: str) -> tuple[str, str]:
    """Return the bucket and the key that `uri` names, from the store called `bucket`.

    `s3://bucket/key`, `file://bucket/key`, `bucket/key`, or the key alone: a path relative to the root. A
    plain path whose first component is this bucket's name begins with the bucket. `BadRequest` for other
    schemes, a path that is absolute or leads out of the root, and keys that are a server's own.
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
    """Return the key of the file that `uri` names in the store called `bucket`, see `file_reference`.

    `Forbidden` for another bucket.
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
        raise BadRequest(f"The file {short_repr(uri)} has an empty component in its path; name every one.")
    if ".." in components or "." in components:
        raise BadRequest(
            f"The file {short_repr(uri)} has '.' or '..' in its path; name it from the store's root."
        )
    # On a file system that does not tell letters by case, DB is the same directory.
    if components[0].casefold() == OBJECTS_FOLDER or any(
        component.startswith(".") for component in components
    ):
        raise BadRequest(f"{short_repr(uri)} is no file to link to: the server keeps its own objects there.")
