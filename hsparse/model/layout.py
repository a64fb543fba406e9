"""Dataset layouts: the requested layout, the stored layout, and the chunk grid derived from a record.

Datasets of every layout are stored in a grid of chunks. The grid may differ from the requested layout, for instance for
a large contiguous dataset or for very small chunks; responses have the requested layout. `record["layout"]` always has
the grid. HSDS 1.0 looks for the grid in `creationProperties.layout`. That key has the requested layout only if the grid
can be derived from it. Otherwise it has the grid, and `record["askedLayout"]` has the requested layout.

The grid of a striped dataset is nested in a layout of class `STRIPED` that has no dims itself. HSDS, which would not
find the chunks, rejects such a dataset instead of reading it as unwritten. The grids of signed and virtual datasets are
nested in the same way, in layouts of class `SIGNED` and `MAPPED`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hsparse.errors import BadRequest, Unsupported
from hsparse.model.dataspace import (
    Shape,
    auto_chunk,
    dims_of,
    enlarge,
    is_extensible,
    lower_of,
    max_dims_of,
)
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.file_backed import (
    CHUNKED_REF,
    CONTIGUOUS_REF,
    FILE_BACKED,
    file_backed_layout,
    grouped_dims,
    slab_dims,
)
from hsparse.model.file_backed_layout import parse_chunked_ref, parse_contiguous_ref, parse_indirect_ref
from hsparse.model.short_text import short_repr
from hsparse.model.stripes import StripeList, bucket_of, parse_stripes

CHUNKED = "H5D_CHUNKED"
CONTIGUOUS = "H5D_CONTIGUOUS"
COMPACT = "H5D_COMPACT"
STRUCTURED = "H5D_STRUCT_CHUNK"
STRIPED = "H5D_CHUNKED_STRIPED"
SIGNED = "H5D_CHUNKED_SIGNED"
MAPPED = "H5D_CHUNKED_VIRTUAL"
SPARSE_DATA = "H5D_SPARSE_DATA"
VL_DATA = "H5D_VL_DATA"
VIRTUAL = "H5D_VIRTUAL"
"""The layout class of a virtual dataset, which maps elements of other datasets; see `hsparse.hdf5.virtual_dataset`."""
ELSEWHERE = (*FILE_BACKED, VIRTUAL)
"""The layout classes of datasets without chunk objects, which are read-only."""
STATISTICS = "chunkStatistics"
"""The key, in records and creation properties, that says whether chunks have statistics."""
MAX_COMPACT = 65536
MAX_CHUNK_BYTES = 128 * 1024 * 1024
MAX_CHUNK_ELEMENTS = 2**32 - 1
MAX_REFERENCES = 2**22
"""The most heap references of a structured chunk; each takes about 200 bytes while the chunk is encoded."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """A requested layout and the chunk grid (empty for a null dataspace, which has no chunks).

    `follows` says that the grid can be derived from the request and the dataset's extent. `stripes` is the number of
    stripes (1 without striping) or the list of their places. `signed` says that the dataset has a lower bound.
    """

    asked: Json
    grid: Json
    follows: bool = False
    stripes: StripeList = 1
    signed: bool = False

    def check_places(self, buckets: Collection[str]) -> None:
        """Raise `BadRequest` if a stripe's place is in none of `buckets`, or if `buckets` is only one bucket."""
        for place in () if isinstance(self.stripes, int) else self.stripes:
            if bucket_of(place) not in buckets or len(buckets) < 2:
                raise BadRequest(
                    f"The stripe {place!r} must be in a bucket of this server, which must serve several; its buckets: "
                    f"{', '.join(buckets)}."
                )

    def fields(self, properties: Json, bucket: str = "") -> Json:
        """Return the record's `layout`, `creationProperties` and, if the grid replaces the request, `askedLayout`.

        If stripes have places, the layout also names the dataset's own `bucket`: their chunks' keys contain its name.
        """
        if self.stripes != 1:
            stored = {"class": STRIPED, "stripes": self.stripes, "layout": self.grid}
            stored |= {} if isinstance(self.stripes, int) else {"bucket": bucket}
            asked = self.asked | {"stripes": self.stripes}
            return {
                "layout": stored,
                "creationProperties": {**properties, "layout": stored},
                "askedLayout": asked,
            }
        if self.signed:
            stored = {"class": SIGNED, "layout": self.grid}
            return {
                "layout": stored,
                "creationProperties": {**properties, "layout": stored},
                "askedLayout": self.asked,
            }
        if self.follows or self.asked == self.grid:
            return {"layout": self.grid, "creationProperties": {**properties, "layout": self.asked}}
        return {
            "layout": self.grid,
            "creationProperties": {**properties, "layout": self.grid},
            "askedLayout": self.asked,
        }


def parse_layout(
    asked: Any, shape: Shape, datatype: Datatype, *, filtered: bool, min_bytes: int, max_bytes: int
) -> Layout:
    """Return the layout for the creation property `layout` (None: not given); raise `BadRequest` if it is invalid.

    Chunk dimensions that the client does not give are chosen such that chunks have `min_bytes` to `max_bytes`.
    Requested chunks below `min_bytes` are enlarged unless the layout has `"enlarge": false`, the type is of variable
    length, or the chunks are structured. `filtered` says that the dataset has filters.
    """
    layout = _unstriped(asked, shape, datatype, filtered, min_bytes, max_bytes)
    signed = bool(lower_of(shape))
    if signed and (asked or {}).get("class", CHUNKED) not in (CHUNKED, STRUCTURED):
        raise Unsupported(f"A dataset with a lower bound needs the layout {CHUNKED} or {STRUCTURED}.")
    stripes = parse_stripes((asked or {}).get("stripes", 1))
    if stripes != 1 and asked.get("class") not in (CHUNKED, STRUCTURED):
        raise BadRequest(f"Stripes need a layout of the class {CHUNKED} or {STRUCTURED}.")
    return replace(layout, stripes=stripes, signed=signed)


def _unstriped(
    asked: Any, shape: Shape, datatype: Datatype, filtered: bool, min_bytes: int, max_bytes: int
) -> Layout:
    if asked is not None and (
        not isinstance(asked, dict) or not isinstance(asked.get("class", CHUNKED), str)
    ):
        raise BadRequest(f"The layout must be an object with a class, not {short_repr(asked)}.")
    if datatype.guessed_size > MAX_CHUNK_BYTES:
        raise BadRequest(
            f"An element of the type has {datatype.guessed_size} bytes; a whole chunk can have {MAX_CHUNK_BYTES}."
        )
    kind = (asked or {}).get("class")
    if asked is not None and kind == STRUCTURED:
        layout = _structured(asked, shape, datatype)
        return Layout(layout, layout)
    if asked is not None and kind in FILE_BACKED:
        return _file_backed(asked, shape, datatype, filtered)
    if asked is not None and kind == VIRTUAL:
        return _virtual(asked, shape, datatype, filtered)
    if kind not in (None, CHUNKED, CONTIGUOUS, COMPACT):
        raise BadRequest(
            f"The layout class {short_repr(kind)} is not {CHUNKED}, {CONTIGUOUS}, {COMPACT} or {STRUCTURED}."
        )
    dims = dims_of(shape)
    if not dims:
        return _undivided(asked, shape, filtered)
    if kind is None:
        small = prod(dims) * datatype.guessed_size < min_bytes
        kind = CONTIGUOUS if small and not is_extensible(shape) and not filtered else CHUNKED
    if kind == CHUNKED:
        return _chunked(asked, shape, datatype, min_bytes, max_bytes)
    return _contiguous(kind, shape, datatype, filtered, min_bytes, max_bytes)


def chunk_dims(record: Json) -> tuple[int, ...]:
    """Return the dimensions of a dataset's chunks, `()` for a scalar; raise `BadRequest` for a null dataspace."""
    dims = dims_of(record["shape"])
    if dims is None:
        raise BadRequest(f"{record.get('id')} has a null dataspace: it has no values.")
    backing = file_backed_layout(record)
    if dims and backing is not None and backing["class"] == CONTIGUOUS_REF:
        return slab_dims(dims, parse_type(record["type"]).guessed_size)
    for layout in (record.get("layout"), record.get("creationProperties", {}).get("layout")):
        grid = _grid(layout)
        if dims and grid.get("dims"):
            return tuple(grid["dims"])
    return tuple(max(1, dim) for dim in dims)


def layout_json(record: Json) -> Json:
    """Return the layout that responses have in the creation properties: the requested layout."""
    layout = (
        record.get("askedLayout")
        or record.get("creationProperties", {}).get("layout")
        or record.get("layout")
    )
    found: Json = layout or {}
    return found | {"dims": stored_layout(record)["dims"]} if found.get("class") == VIRTUAL else found


def stored_layout(record: Json) -> Json:
    """Return the layout of the chunk grid, without stripes; for old records this is the requested layout."""
    return _grid(record.get("layout") or record.get("creationProperties", {}).get("layout"))


def stripes_of(record: Json) -> StripeList:
    """Return the dataset's stripes: their number (1 without striping) or the list of their places."""
    layout = record.get("layout") or {}
    stripes: StripeList = layout["stripes"] if layout.get("class") == STRIPED else 1
    return stripes


def class_elsewhere(record: Json) -> str:
    """Return the layout class of a dataset without chunk objects (file-backed or virtual), `""` for any other."""
    kind = ((record.get("creationProperties") or {}).get("layout") or {}).get("class", "")
    return kind if kind in ELSEWHERE else ""


def is_signed(record: Json) -> bool:
    """Return whether a record belongs to a signed dataset, which has a lower bound."""
    return bool(lower_of(record.get("shape") or {}))


def has_statistics(record: Json) -> bool:
    """Return whether the dataset's chunks are stored with statistics, see `hsparse.format.chunk_spec`."""
    return record.get(STATISTICS) is True


def is_sparse(record: Json) -> bool:
    """Return whether the dataset's chunks are sparse structured chunks."""
    layout = stored_layout(record)
    return is_structured(record) and SPARSE_DATA in layout.get("flags", ())


def is_structured(record: Json) -> bool:
    """Return whether the dataset's chunks are structured chunks, sparse or dense."""
    layout = stored_layout(record)
    return bool(layout.get("class") == STRUCTURED)


def _grid(layout: Json | None) -> Json:
    """Return the layout nested in a striped, signed or virtual layout, any other layout itself, or `{}` for None."""
    return (layout["layout"] if layout and layout.get("class") in (STRIPED, SIGNED, MAPPED) else layout) or {}


def _undivided(asked: Json | None, shape: Shape, filtered: bool) -> Layout:
    """Return the layout of a scalar or null dataspace."""
    name = "scalar" if shape["class"] == "H5S_SCALAR" else "null"
    if filtered or (asked or {}).get("class") == CHUNKED:
        raise BadRequest(f"A {name} dataspace has no chunks: leave out the chunked layout and the filters.")
    if shape["class"] == "H5S_NULL":
        return Layout({}, {})
    return Layout(
        {"class": (asked or {}).get("class", CONTIGUOUS)}, {"class": CHUNKED, "dims": [1]}, follows=True
    )


def _chunked(asked: Json | None, shape: Shape, datatype: Datatype, min_bytes: int, max_bytes: int) -> Layout:
    limits, size = max_dims_of(shape), datatype.guessed_size
    wanted = _chunk(asked, shape) if asked and asked.get("dims") is not None else None
    if wanted is None:
        chosen = {"class": CHUNKED, "dims": list(auto_chunk(limits, size, min_bytes, max_bytes))}
        return Layout(chosen, chosen)
    if prod(wanted) * size > MAX_CHUNK_BYTES:
        raise BadRequest(
            f"A chunk of {list(wanted)} has {prod(wanted) * size} bytes; the limit is {MAX_CHUNK_BYTES}: reduce dims."
        )
    # The size of variable-length elements is unknown here, so chunk dimensions that the client chose are kept.
    enlarges = (asked or {}).get("enlarge", True)
    if not isinstance(enlarges, bool):
        raise BadRequest(f"The layout's enlarge must be true or false, not {short_repr(enlarges)}.")
    grid = wanted if datatype.is_vlen or not enlarges else enlarge(wanted, limits, size, min_bytes)
    return Layout({"class": CHUNKED, "dims": list(wanted)}, {"class": CHUNKED, "dims": list(grid)})


def _contiguous(
    kind: str, shape: Shape, datatype: Datatype, filtered: bool, min_bytes: int, max_bytes: int
) -> Layout:
    dims, size = dims_of(shape) or (), datatype.guessed_size
    if is_extensible(shape):
        raise BadRequest(f"A dataset with maxdims needs the layout {CHUNKED}, not {kind}.")
    if filtered:
        raise BadRequest(f"Filters need the layout {CHUNKED}, not {kind}.")
    if kind == COMPACT and prod(dims) * size > MAX_COMPACT:
        raise BadRequest(
            f"A compact dataset can have at most {MAX_COMPACT} bytes, not {prod(dims) * size}; use {CHUNKED}."
        )
    whole = [max(1, dim) for dim in dims]
    if prod(whole) * size <= max_bytes:
        return Layout({"class": kind}, {"class": CHUNKED, "dims": whole}, follows=True)
    grid = auto_chunk(dims, size, min_bytes, max_bytes)
    return Layout({"class": kind}, {"class": CHUNKED, "dims": list(grid)})


def _file_backed(asked: Json, shape: Shape, datatype: Datatype, filtered: bool) -> Layout:
    """Return the layout of a file-backed dataset; a chunk of its grid groups small pieces of the file."""
    dims, size = dims_of(shape), datatype.guessed_size
    if not dims:
        raise BadRequest(f"A scalar or null dataspace cannot have the layout {asked['class']}.")
    if asked["class"] == CONTIGUOUS_REF:
        if any(limit != dim for limit, dim in zip(max_dims_of(shape), dims, strict=True)):
            raise BadRequest(f"A dataset that can grow needs chunks, not {CONTIGUOUS_REF}.")
        stored = parse_contiguous_ref(asked, dims, datatype, filtered=filtered)
        return Layout(stored, {"class": CHUNKED, "dims": list(slab_dims(dims, size))}, follows=True)
    chunk = _chunk(asked, shape)
    if prod(chunk) * size > MAX_CHUNK_BYTES:
        raise BadRequest(
            f"A chunk of {list(chunk)} has {prod(chunk) * size} bytes; the limit is {MAX_CHUNK_BYTES}: reduce dims."
        )
    if asked["class"] == CHUNKED_REF:
        stored = parse_chunked_ref(asked, chunk, datatype, filtered=filtered)
    else:
        stored = parse_indirect_ref(asked, chunk, datatype)
    piece = tuple(stored.get("hyper_dims", chunk))
    grid = grouped_dims(piece, max_dims_of(shape), size)
    return Layout(stored, {"class": CHUNKED, "dims": list(grid)}, follows=True)


def _virtual(asked: Json, shape: Shape, datatype: Datatype, filtered: bool) -> Layout:
    """Return the layout of a virtual dataset, whose grid is the unit of reading. Mappings are checked elsewhere."""
    dims, flags = dims_of(shape), asked.get("flags") or []
    if not dims:
        raise BadRequest(f"A scalar or null dataspace cannot have the layout {VIRTUAL}.")
    if filtered:
        raise BadRequest("A virtual dataset stores no chunks: leave out the filters.")
    if flags not in ([], [SPARSE_DATA]):
        raise BadRequest(f"The flag of {VIRTUAL} is {SPARSE_DATA}, not {short_repr(flags)}.")
    named = asked.get("dims") is not None
    grid = list(_chunk(asked, shape) if named else slab_dims(dims, datatype.guessed_size))
    if prod(grid) > MAX_CHUNK_ELEMENTS:
        raise BadRequest(f"A chunk of {grid} has {prod(grid)} elements; the limit is {MAX_CHUNK_ELEMENTS}.")
    kind = {"class": STRUCTURED, "dims": grid, "flags": flags} if flags else {"class": CHUNKED, "dims": grid}
    return Layout(asked, kind, follows=True)


def _structured(asked: Json, shape: Shape, datatype: Datatype) -> Json:
    flags = asked.get("flags", [])
    if not isinstance(flags, list) or not all(flag in (SPARSE_DATA, VL_DATA) for flag in flags):
        raise BadRequest(
            f"The flags of {STRUCTURED} are {SPARSE_DATA} and {VL_DATA}, not {short_repr(flags)}."
        )
    if not dims_of(shape):
        raise BadRequest(f"A scalar or null dataspace cannot have the layout {STRUCTURED}.")
    if VL_DATA in flags and not datatype.is_vlen:
        raise BadRequest(f"The flag {VL_DATA} needs a variable-length type.")
    if not flags or (SPARSE_DATA not in flags and not datatype.is_vlen):
        raise Unsupported(f"Structured chunks without {SPARSE_DATA} are not supported; use {CHUNKED}.")
    dims = _chunk(asked, shape)
    if prod(dims) > MAX_CHUNK_ELEMENTS:
        raise BadRequest(
            f"A chunk of {list(dims)} has {prod(dims)} elements; the limit is {MAX_CHUNK_ELEMENTS}: reduce dims."
        )
    if SPARSE_DATA not in flags:
        _check_dense_references(dims, datatype)
    return {"class": STRUCTURED, "dims": list(dims), "flags": list(dict.fromkeys(flags))}


def _check_dense_references(dims: tuple[int, ...], datatype: Datatype) -> None:
    nbytes, references = prod(dims) * datatype.guessed_size, prod(dims) * datatype.element.references
    if nbytes > MAX_CHUNK_BYTES:
        raise BadRequest(f"A chunk of {list(dims)} has {nbytes} bytes; the limit is {MAX_CHUNK_BYTES}.")
    if references > MAX_REFERENCES:
        raise BadRequest(
            f"A chunk of {list(dims)} has {references} strings and sequences; the limit is {MAX_REFERENCES}."
        )


def _chunk(asked: Json, shape: Shape) -> tuple[int, ...]:
    """Return the requested chunk dimensions; raise `BadRequest` if they do not fit the dataspace, as HDF5 does."""
    value = asked.get("dims")
    chunk = [value] if isinstance(value, int) else value
    dims = dims_of(shape) or ()
    if not isinstance(chunk, list | tuple) or len(chunk) != len(dims):
        raise BadRequest(
            f"The layout's dims must have one number for each of the {len(dims)} dimensions, not {short_repr(value)}."
        )
    for dim, (extent, limit) in enumerate(zip(chunk, max_dims_of(shape), strict=True)):
        if not isinstance(extent, int) or isinstance(extent, bool) or not 0 < extent < 2**32:
            raise BadRequest(
                f"Dimension {dim} of the layout's dims is {short_repr(extent)}; it must be 1 to 2^32-1."
            )
        if limit is not None and dims[dim] > 0 and extent > limit:
            raise BadRequest(
                f"Dimension {dim} of a chunk has {extent} elements; in the dataset it has at most {limit}."
            )
    return tuple(chunk)
