"""The filters of a dataset's creation properties, as clients write them, and the pipelines they mean.

Client values are what libhdf5 stores once a filter has been told the datatype and the chunk (its
`set_local`), so that the pipeline can stand in an HDF5 file as it is.

Filters as answers and records have them: objects with class, id and name, however they were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.filters.definition import Filter

SECTIONS = ("H5_SECTION_SELECTION", "H5_SECTION_FIXED", "H5_SECTION_VL")
MAX_FILTERS = 32
DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
LZF, BLOSC, LZ4, BITSHUFFLE, ZSTD = 32000, 32001, 32004, 32008, 32015
LZ4HC = 32005
NBIT, SCALEOFFSET = 5, 6
"""The REST API's own id: HDF5 has LZ4HC as a compressor of Blosc, which is what gets stored."""


DEFAULT_SELECTION_LEVEL = 2
"""Deflate level of section 0 where a sparse dataset is created without filters.

Measured on the records of 1 million random points, 8.0 MB: level 1 gives 860 kB in 35 ms, level 2 823 kB in
20 ms, level 4 827 kB in 20 ms, level 6 790 kB in 28 ms. Decoding takes 6 ms at any level.
"""

COMPRESSORS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
"""Blosc's compressors, by its code."""

NAMES = {
    "none": 0,
    "H5Z_FILTER_NONE": 0,
    "gzip": DEFLATE,
    "deflate": DEFLATE,
    "zlib": DEFLATE,
    "H5Z_FILTER_DEFLATE": DEFLATE,
    "shuffle": SHUFFLE,
    "H5Z_FILTER_SHUFFLE": SHUFFLE,
    "fletcher32": FLETCHER32,
    "H5Z_FILTER_FLETCHER32": FLETCHER32,
    "lzf": LZF,
    "H5Z_FILTER_LZF": LZF,
    "blosc": BLOSC,
    "blosclz": BLOSC,
    "H5Z_FILTER_BLOSC": BLOSC,
    "lz4": LZ4,
    "H5Z_FILTER_LZ4": LZ4,
    "lz4hc": LZ4HC,
    "H5Z_FILTER_LZ4HC": LZ4HC,
    "bitshuffle": BITSHUFFLE,
    "H5Z_FILTER_BITSHUFFLE": BITSHUFFLE,
    "zstd": ZSTD,
    "H5Z_FILTER_ZSTD": ZSTD,
    "szip": 4,
    "H5Z_FILTER_SZIP": 4,
    "nbit": 5,
    "H5Z_FILTER_NBIT": 5,
    "scaleoffset": 6,
    "H5Z_FILTER_SCALEOFFSET": 6,
    "snappy": 32003,
    "H5Z_FILTER_SNAPPY": 32003,
}
UNSUPPORTED = {4: "szip", 5: "nbit", 6: "scaleoffset", 32003: "snappy"}
WORKING = "deflate, shuffle, fletcher32, lzf, blosc, lz4, lz4hc, bitshuffle and zstd work"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A filter as asked for: its id, its name for messages, level and parameters where they were given."""

    id: int
    name: str
    level: int | None
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Local:
    """What a filter is told about the data: sizes in bytes of an element and of a chunk."""

    element_size: int
    chunk_bytes: int


def parse_filters(
    items: Sequence[Any],
    element_size: int,
    *,
    sparse: bool,
    chunk_bytes: int,
    record_size: int = 1,
    heap: bool = False,
) -> tuple[tuple[Filter, ...], ...]:
    """Return one pipeline a section: one for a dense layout; for a sparse one selection, fixed-size values.

    With `heap`, that of variable-length parts is a third; the selection's is empty where the layout is dense.
    `items` are `creationProperties.filters`: objects, ids or names. `element_size` and `chunk_bytes` are of
    the datatype and of a chunk with all elements; `record_size` is of one record of an encoded selection
    and takes the element's place in section 0 (see `record_size`). A structured chunk without any filter
    gets a compressed selection and compressed references; `none` prevents that. `BadRequest` names what is
    wrong, `Unsupported` a filter that is not available.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise BadRequest(f"filters must be a list, not {items!r}.")
    told = (_Local(record_size, chunk_bytes), _Local(element_size, chunk_bytes), _Local(1, chunk_bytes))
    if not sparse and not heap:
        return (_dense_pipeline(items, told[1]),)
    there = tuple(number for number, has in enumerate((sparse, True, heap)) if has)
    pipelines: tuple[list[Filter], ...] = ([], [], [])
    if not items:
        for number in there[: len(there) - 1]:  # of places and references, not of values
            pipelines[number].append(Filter(SHUFFLE, (told[number].element_size,)))
            pipelines[number].append(Filter(DEFLATE, (DEFAULT_SELECTION_LEVEL,)))
    for item in items:
        asked = _read(item)
        for number in _sections_of(item, asked.name, there):
            if asked.id:
                pipelines[number].append(_filter(asked, told[number]))
    for pipeline in pipelines:
        _check_length(pipeline)
    found = tuple(tuple(pipeline) for pipeline in pipelines)
    return (*found[:2], without_shuffles(found[2])) if heap else found[:2]


def without_shuffles(pipeline: tuple[Filter, ...]) -> tuple[Filter, ...]:
    """Return a pipeline for data whose elements have no fixed size, of which bytes cannot be sorted by place.

    HSDS leaves these filters out too.
    """
    return tuple(filter for filter in pipeline if filter.id not in (SHUFFLE, BITSHUFFLE))


def record_size(dims: Sequence[int]) -> int:
    """Return the bytes of a point in the encoded selection of a chunk of `dims`: rank times a coordinate.

    A coordinate is as wide as the number of points must be. In a chunk of more than 65535 elements it is 2
    or 4 bytes; 4 is right where it matters, and is one block of two-byte coordinates as well.
    """
    # Bytes after shuffle(s) and deflate 6, chunks of 1024 x 1024 (lcls: 16 x 512 x 512), r = rank:
    #                                        raw   s = 2r    s = 4r    s = 8r
    #   10 % random, points of 4 bytes   838 928  193 946   111 434   120 449
    #   5 % random, points of 2 bytes    209 774   59 220    63 963    69 780
    #   1 % random, points of 2 bytes     42 006   15 235    16 883    18 003
    #   lcls, 304 runs of 5 to 10          3 727    1 495     1 225     1 268
    #   one run a row, 1024 rows           8 255    3 465     3 391     3 457
    return max(len(dims), 1) * (2 if math.prod(dims) <= 0xFFFF else 4)


def _dense_pipeline(items: Sequence[Any], local: _Local) -> tuple[Filter, ...]:
    pipeline: list[Filter] = []
    for item in items:
        asked = _read(item)
        if isinstance(item, dict) and "section" in item:
            raise BadRequest(f"The filter {asked.name} names a section; only sparse layouts have sections.")
        if asked.id == BITSHUFFLE and any(filter.id != SHUFFLE for filter in pipeline):
            # It takes whole elements only, and a dense chunk cannot note that it was skipped.
            raise BadRequest("The filter bitshuffle must come before filters that change the size of data.")
        if asked.id:
            pipeline.append(_filter(asked, local))
    _check_length(pipeline)
    return tuple(pipeline)


def _check_length(pipeline: Sequence[Filter]) -> None:
    if len(pipeline) > MAX_FILTERS:
        raise BadRequest(f"A pipeline has {len(pipeline)} filters; at most {MAX_FILTERS} are allowed.")


def _sections_of(item: Any, name: str, there: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sections an item is about, of those that are there: all, when it names none."""
    section = item.get("section") if isinstance(item, dict) else None
    if section is None:
        return there
    if section not in SECTIONS:
        raise BadRequest(
            f"The filter {name} names the section {section!r}; use one of {', '.join(SECTIONS)}."
        )
    number = SECTIONS.index(section)
    if number not in there:
        what = "data of fixed size" if number == 2 else "a dense layout"
        raise BadRequest(f"The filter {name} names {section}; {what} has no such section.")
    return (number,)


def _read(item: Any) -> _Asked:
    """Read one item: an object, an id or a name."""
    if not isinstance(item, dict):
        id = _identify(item)
        return _Asked(id, str(item), None, ())
    key = item.get("class", "H5Z_FILTER_USER")
    if key == "H5Z_FILTER_USER":
        key = item.get("id", item.get("name"))
    id = _identify(key)
    if "id" in item and item["id"] != id:
        raise BadRequest(f"The filter {key} has id {id}, not {item['id']!r}.")
    return _Asked(id, str(key), _level(item, key), _parameters(item, key))


def _identify(key: Any) -> int:
    """Return the id that a class, an id or a name stands for; `BadRequest` when the filter is unknown."""
    if isinstance(key, str) and key in NAMES:
        id = NAMES[key]
    elif isinstance(key, int) and not isinstance(key, bool) and key in NAMES.values():
        id = key
    else:
        raise BadRequest(f"The filter {key!r} is unknown; {WORKING}.")
    if id in UNSUPPORTED:
        raise Unsupported(f"The filter {UNSUPPORTED[id]} is not available; {WORKING}.")
    return id


def _level(item: dict[str, Any], name: Any) -> int | None:
    level = item.get("level")
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise BadRequest(f"The level of the filter {name} must be an integer, not {level!r}.")
    return level


def _parameters(item: dict[str, Any], name: Any) -> tuple[int, ...]:
    """Return the client values an item gives; each is an unsigned 32-bit number."""
    given = item.get("parameters")
    given = [] if given is None else given
    given = [given] if isinstance(given, int) else given
    if not isinstance(given, list) or not all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32 for value in given
    ):
        raise BadRequest(
            f"The parameters of the filter {name} must be a list of 32-bit numbers, not {given!r}."
        )
    return tuple(given)


# --- client values, by filter ---------------------------------------------------------------------


def _filter(asked: _Asked, local: _Local) -> Filter:
    return _BUILDERS[asked.id](asked, local)


def _checked_level(asked: _Asked, default: int, most: int) -> int:
    """Return the level asked for, as such or as the first parameter; `BadRequest` outside 0 to `most`."""
    level = asked.level
    if level is None:
        level = asked.parameters[0] if asked.parameters else default
    return _in_range(asked, "level", level, most)


def _in_range(asked: _Asked, what: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise BadRequest(f"The {what} of the filter {asked.name} must be 0 to {most}, not {value}.")
    return value


def _deflate(asked: _Asked, local: _Local) -> Filter:
    return Filter(DEFLATE, (_checked_level(asked, 4, 9),))


def _shuffle(asked: _Asked, local: _Local) -> Filter:
    return Filter(SHUFFLE, (local.element_size,))


def _fletcher32(asked: _Asked, local: _Local) -> Filter:
    # As H5Pset_fletcher32 does: a checksum that may silently be missing is none.
    return Filter(FLETCHER32, (), optional=False)


def _lzf(asked: _Asked, local: _Local) -> Filter:
    # The filter's revision, the LZF library's version 1.5 (0x0105), and the size of a chunk.
    return Filter(LZF, (4, 0x0105, local.chunk_bytes))


def _blosc(asked: _Asked, local: _Local) -> Filter:
    # Revision of the filter and of the format, sizes, then what the user gives from the fifth value on.
    given = asked.parameters[4:]
    level = asked.level if asked.level is not None else given[0] if given else 5
    shuffle = _in_range(asked, "shuffle", given[1] if len(given) > 1 else 1, 2)
    compressor = given[2] if len(given) > 2 else 0
    if asked.id == LZ4HC:
        compressor = COMPRESSORS.index("lz4hc")
    _in_range(asked, "compressor", compressor, len(COMPRESSORS) - 1)
    # Blosc shuffles elements of up to 255 bytes.
    size = local.element_size if local.element_size <= 255 else 1
    return Filter(
        BLOSC, (2, 2, size, local.chunk_bytes, _in_range(asked, "level", level, 9), shuffle, compressor)
    )


def _lz4(asked: _Asked, local: _Local) -> Filter:
    # The filter has no level, only the size of a block, 0 for its default; a level is checked and dropped.
    if asked.level is not None:
        _in_range(asked, "level", asked.level, 9)
    block = asked.parameters[0] if asked.parameters else 0
    return Filter(LZ4, (_in_range(asked, "block size", block, 0x7E000000),))


def _bitshuffle(asked: _Asked, local: _Local) -> Filter:
    # Version 0.4, element size, then what the user gives: block size, compression, level.
    given = asked.parameters
    stored = len(given) > 4 or (len(given) == 3 and given[:2] == (0, 4))
    given = given[3:] if stored else given  # a client that copies a file's pipeline sends all values
    if given and given[0] % 8:
        raise BadRequest(
            f"The block size of the filter {asked.name} must be a multiple of 8, not {given[0]}."
        )
    if len(given) > 1 and given[1] not in (0, 2, 3):
        raise BadRequest(
            f"The compression of the filter {asked.name} must be 0 (none), 2 (LZ4) or 3 (zstd),"
            f" not {given[1]}."
        )
    if len(given) > 2:
        _in_range(asked, "level", given[2], 22)
    return Filter(BITSHUFFLE, (0, 4, local.element_size, *given[:3]))


def _zstd(asked: _Asked, local: _Local) -> Filter:
    return Filter(ZSTD, (_checked_level(asked, 3, 22),))


_BUILDERS: dict[int, Callable[[_Asked, _Local], Filter]] = {
    DEFLATE: _deflate,
    SHUFFLE: _shuffle,
    FLETCHER32: _fletcher32,
    LZF: _lzf,
    BLOSC: _blosc,
    LZ4: _lz4,
    LZ4HC: _blosc,
    BITSHUFFLE: _bitshuffle,
    ZSTD: _zstd,
}


USER = "H5Z_FILTER_USER"
SPELLINGS = {
    DEFLATE: ("H5Z_FILTER_DEFLATE", "gzip"),
    SHUFFLE: ("H5Z_FILTER_SHUFFLE", "shuffle"),
    FLETCHER32: ("H5Z_FILTER_FLETCHER32", "fletcher32"),
    NBIT: ("H5Z_FILTER_NBIT", "nbit"),
    SCALEOFFSET: ("H5Z_FILTER_SCALEOFFSET", "scaleoffset"),
    LZF: ("H5Z_FILTER_LZF", "lzf"),
    BLOSC: ("H5Z_FILTER_BLOSC", "blosclz"),
    LZ4: ("H5Z_FILTER_LZ4", "lz4"),
    LZ4HC: ("H5Z_FILTER_LZ4HC", "lz4hc"),
    BITSHUFFLE: ("H5Z_FILTER_BITSHUFFLE", "bitshuffle"),
    ZSTD: ("H5Z_FILTER_ZSTD", "zstd"),
}
"""Class and name of a filter, by its id: clients know a compressor by its name alone."""


def filters_to_json(items: list[Any]) -> list[Any]:
    """Return filters that were asked for by objects, ids or names as objects; what is not known as it is."""
    return [_spelled(item) for item in items]


def _spelled(item: Any) -> Any:
    asked = item if isinstance(item, dict) else {}
    key = asked.get("class", USER) if asked else item
    if asked and key == USER:
        key = asked.get("id", asked.get("name"))
    id = NAMES.get(key) if isinstance(key, str) else key
    if not isinstance(id, int) or id not in SPELLINGS:
        return item
    kind, name = SPELLINGS[id]
    named = item if item == "deflate" else name
    return {"class": kind, "id": id, "name": named} | {k: v for k, v in asked.items() if k != "class"}
