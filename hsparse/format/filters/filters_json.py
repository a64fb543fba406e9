"""The filters of a dataset's creation properties: as clients write them, the pipelines they mean, and as JSON again.

Client values are what libhdf5 stores once a filter has been told the datatype and the chunk (its
`set_local`), so that the pipeline can stand in an HDF5 file as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hsparse.errors import BadRequest
from hsparse.format.filters.definition import (
    DataSizes,
    Filter,
    FilterDefinition,
    FilterRequest,
    Json,
)
from hsparse.format.filters.table import BY_ID, default_pipeline, find, requestable
from hsparse.model.short_text import short_repr

SECTIONS = ("H5_SECTION_SELECTION", "H5_SECTION_FIXED", "H5_SECTION_VL")
MAX_FILTERS = 32
MAX_ELEMENT = 256
"""Bytes of the largest point: 32 coordinates of 8 bytes."""
USER = "H5Z_FILTER_USER"


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
    and takes the element's place in section 0 (see `record_size`), unless an item has an `element_size` for
    it. A structured chunk without any filter gets a compressed selection and compressed references; `none` prevents
    that. `BadRequest` names what is wrong, `Unsupported` a filter that is not available.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise BadRequest(f"filters must be a list, not {short_repr(items)}.")
    sizes = tuple(DataSizes(size, chunk_bytes) for size in (record_size, element_size, 1))
    if not sparse and not heap:
        return (_dense_pipeline(items, sizes[1]),)
    there = tuple(number for number, has in enumerate((sparse, True, heap)) if has)
    pipelines: tuple[list[Filter], ...] = ([], [], [])
    if not items:
        for number in there[: len(there) - 1]:  # of places and references, not of values
            pipelines[number].extend(default_pipeline(sizes[number].element))
    for item in items:
        definition, request = _parse(item)
        for number in _sections_of(item, request.name, there):
            if definition.id:
                size = (request.element_size if number == 0 else None) or sizes[number].element
                pipelines[number].append(definition.requested(request, DataSizes(size, chunk_bytes)))
    for pipeline in pipelines:
        _check_length(pipeline)
    found = tuple(tuple(pipeline) for pipeline in pipelines)
    return (*found[:2], filters_for_vlen(found[2])) if heap else found[:2]


def filters_for_vlen(pipeline: tuple[Filter, ...]) -> tuple[Filter, ...]:
    """Return the filters of a pipeline that suit elements of no fixed size, whose bytes cannot be sorted by place.

    HSDS leaves the others out too.
    """
    return tuple(
        filter
        for filter in pipeline
        if not (BY_ID[filter.id].shuffles_bytes or BY_ID[filter.id].shuffles_bits)
    )


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


def filters_to_json(items: list[Any]) -> list[Any]:
    """Return filters as answers and records have them: objects with class, id and name, however they were requested.

    What is not known stays as it is.
    """
    return [_to_json(item) for item in items]


def creation_property(filter: Filter, section: int | None = None) -> Json:
    """Return a filter as an entry of `creationProperties.filters`, of a section of structured chunks if given."""
    definition = BY_ID.get(filter.id)
    if definition is None:
        item: Json = {"id": filter.id, "parameters": list(filter.values)}
    else:
        item = definition.creation_property(filter.values)
    return item if section is None else item | {"section": SECTIONS[section]}


def filter_key(item: Any) -> Any:
    """Return the class, name or id by which an item of `creationProperties.filters` names its filter."""
    if not isinstance(item, dict):
        return item
    key = item.get("class", USER)
    return item.get("id", item.get("name")) if key == USER else key


def _to_json(item: Any) -> Any:
    definition = find(filter_key(item) if item else item)
    if definition is None or not definition.api_names:
        return item
    name = item if item in definition.api_names else definition.api_names[0]
    rest = {key: value for key, value in item.items() if key != "class"} if isinstance(item, dict) else {}
    return {"class": definition.hdf5_class, "id": definition.id, "name": name} | rest


def _dense_pipeline(items: Sequence[Any], sizes: DataSizes) -> tuple[Filter, ...]:
    pipeline: list[Filter] = []
    for item in items:
        definition, request = _parse(item)
        if isinstance(item, dict) and "section" in item:
            raise BadRequest(f"The filter {request.name} names a section; only sparse layouts have sections.")
        if definition.whole_elements and not all(BY_ID[filter.id].shuffles_bytes for filter in pipeline):
            # A dense chunk cannot note that the filter was skipped.
            raise BadRequest(
                f"The filter {definition.name} must come before filters that change the size of data."
            )
        if definition.id:
            pipeline.append(definition.requested(request, sizes))
    _check_length(pipeline)
    return tuple(pipeline)


def _check_length(pipeline: Sequence[Filter]) -> None:
    if len(pipeline) > MAX_FILTERS:
        raise BadRequest(f"A pipeline has {len(pipeline)} filters; at most {MAX_FILTERS} are allowed.")


def _sections_of(item: Any, name: str, there: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sections that an item is about: all sections of the chunk when it names none."""
    section = item.get("section") if isinstance(item, dict) else None
    if section is None:
        return there
    if section not in SECTIONS:
        raise BadRequest(
            f"The filter {name} names the section {short_repr(section)}; use one of {', '.join(SECTIONS)}."
        )
    number = SECTIONS.index(section)
    if number not in there:
        what = "data of fixed size" if number == 2 else "a dense layout"
        raise BadRequest(f"The filter {name} names {section}; {what} has no such section.")
    return (number,)


def _parse(item: Any) -> tuple[FilterDefinition, FilterRequest]:
    """Return the filter that an item requests, and its parameters; `BadRequest`, `Unsupported`."""
    key = filter_key(item)
    definition = requestable(key)
    if not isinstance(item, dict):
        return definition, FilterRequest(str(item), None, ())
    if "id" in item and item["id"] != definition.id:
        raise BadRequest(f"The filter {key} has id {definition.id}, not {short_repr(item['id'])}.")
    size = item.get("element_size")
    if size is not None and (
        not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_ELEMENT
    ):
        raise BadRequest(
            f"The element size of the filter {key} must be 1 to {MAX_ELEMENT}, not {short_repr(size)}."
        )
    return definition, FilterRequest(str(key), _level(item, key), _parameters(item, key), size)


def _level(item: dict[str, Any], name: Any) -> int | None:
    level = item.get("level")
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise BadRequest(f"The level of the filter {name} must be an integer, not {short_repr(level)}.")
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
            f"The parameters of the filter {name} must be a list of 32-bit numbers, not {short_repr(given)}."
        )
    return tuple(given)
