"""Parse the layouts of file-backed datasets in requests, the three reference layouts of HSDS, to the stored form."""

from __future__ import annotations

from math import prod
from typing import Any

from hsparse.errors import BadRequest
from hsparse.model.datatype import Datatype
from hsparse.model.file_backed import CHUNKED_REF, CHUNKED_REF_INDIRECT, CONTIGUOUS_REF, Dims, Json
from hsparse.model.short_text import short_repr

MAX_ENTRIES = 10_000
"""The most pieces that a record may list; larger datasets need a chunk table."""


def parse_contiguous_ref(asked: Json, dims: Dims, datatype: Datatype, *, filtered: bool) -> Json:
    """Return the stored form of the layout `H5D_CONTIGUOUS_REF`; raise `BadRequest` if it is invalid."""
    check_file_backed_type(datatype)
    if filtered:
        raise BadRequest(f"Data with filters is in chunks, not contiguous: use {CHUNKED_REF}.")
    size, needed = _number(asked, "size"), prod(dims) * datatype.guessed_size
    if size not in (0, needed):
        raise BadRequest(
            f"The layout's size is {size} bytes, but the dataset has {needed}: its type must be exactly that "
            "of the file, including any gaps between fields."
        )
    return {
        "class": CONTIGUOUS_REF,
        "file_uri": file_uri(asked),
        "offset": _number(asked, "offset"),
        "size": size,
    }


def parse_chunked_ref(asked: Json, dims: Dims, datatype: Datatype, *, filtered: bool) -> Json:
    """Return the stored form of the layout `H5D_CHUNKED_REF` with chunk dimensions `dims`."""
    check_file_backed_type(datatype)
    chunks = asked.get("chunks")
    if not isinstance(chunks, dict):
        raise BadRequest(
            "The layout's chunks must be an object that maps scaled coordinates to a chunk's offset and size."
        )
    if len(chunks) > MAX_ENTRIES:
        raise BadRequest(
            f"The layout lists {len(chunks)} chunks; the limit is {MAX_ENTRIES}: use {CHUNKED_REF_INDIRECT}."
        )
    size = prod(dims) * datatype.guessed_size
    entries = {_name(key, len(dims)): _entry(key, value, size, filtered) for key, value in chunks.items()}
    return {"class": CHUNKED_REF, "file_uri": file_uri(asked), "dims": list(dims), "chunks": entries}


def parse_indirect_ref(asked: Json, dims: Dims, datatype: Datatype) -> Json:
    """Return the stored form of the layout `H5D_CHUNKED_REF_INDIRECT`; the chunk table itself is not checked here.

    Without `file_uri` the table names the file of each piece. `hyper_dims` are the dimensions of the file's chunks if
    `dims` already group several of them.
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
    """Return the `file_uri` of a layout in a request; raise `BadRequest` if it is missing or not a string."""
    uri = asked.get("file_uri")
    if not isinstance(uri, str) or not uri:
        raise BadRequest(f"The layout's file_uri must name a file in the store, not {short_repr(uri)}.")
    return uri


def check_file_backed_type(datatype: Datatype) -> None:
    """Raise `BadRequest` for types whose values in a file are addresses in that file (vlen and references)."""
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
        raise BadRequest(f"{short_repr(key)} is not a chunk: give {rank} scaled coordinates, as in 0_3.")
    return "_".join(str(int(part)) for part in parts)


def _entry(key: str, value: Any, size: int, filtered: bool) -> list[int]:
    """Return a list: the piece's offset, size and any filter mask. An unfiltered piece must have `size` bytes."""
    right = isinstance(value, list | tuple) and len(value) in (2, 3) and all(_is_int(part) for part in value)
    if not right or not (0 <= value[0] < 2**62 and 0 <= value[1] < 2**62):
        raise BadRequest(
            f"The chunk {short_repr(key)} must have an offset and a size in bytes, not {short_repr(value)}."
        )
    if len(value) == 3 and not 0 <= value[2] < 2**32:
        raise BadRequest(f"The filter mask of the chunk {key} is {value[2]}; it must be 0 to 2^32-1.")
    if not filtered and value[1] not in (0, size, size + 4):
        raise BadRequest(f"The chunk {key} has {value[1]} bytes; without filters it must have {size}.")
    return list(value)


def _number(asked: Json, name: str) -> int:
    value: Any = asked.get(name)
    if not _is_int(value) or not 0 <= value < 2**62:
        raise BadRequest(f"The layout's {name} must be a number of bytes, not {short_repr(value)}.")
    return int(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
