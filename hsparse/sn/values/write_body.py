"""What a value request's body says: a selection, and the values for it."""

from __future__ import annotations

import base64
import binascii
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from h5json.array_util import jsonToArray
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.fields import packed_type, parse_fields
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.selection import Orthogonal, Points, Selection, Span
from hsparse.format.structured.region import decode_region, decode_vlen_region
from hsparse.model.json_form import Values
from hsparse.sn.context import Context
from hsparse.sn.http.request import read_json_object
from hsparse.sn.media import Media, sent
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.values.arrow import read_arrow, read_variable_arrow
from hsparse.sn.values.typed_json import is_plain, typed_json
from hsparse.sn.values.variable_values import variable_bytes

JSON_KEYS = frozenset(
    {
        "value",
        "value_base64",
        "start",
        "stop",
        "step",
        "points",
        "append",
        "append_dim",
        "element_count",
        "select",
        "fields",
    }
)


@dataclass(frozen=True, slots=True)
class Append:
    """Grow dimension `dim` by `count`, then write there."""

    count: int
    dim: int


@dataclass(frozen=True, slots=True)
class WriteBody:
    """A write as sent, before it is known which extent it meets. `json` is `{}` for other media."""

    media: Media
    data: bytes | bytearray
    json: dict[str, Any]
    append: Append | None
    fields: str | None


async def read_body(context: Context) -> WriteBody:
    """Read a write's body whole: one cut short applies nothing."""
    media = sent(context.request)
    if media is not Media.JSON:
        append = _append(context.number("append"), context.number("append_dim"))
        return WriteBody(media, await context.body(), {}, append, context.arg("fields"))
    body = await read_json_object(context)
    unknown = set(body) - JSON_KEYS
    if unknown:
        known = ", ".join(sorted(JSON_KEYS))
        raise BadRequest(f"Unknown key {min(unknown)!r} in the body; known are {known}.")
    count, dim = (body.get(key, context.number(key)) for key in ("append", "append_dim"))
    fields = body.get("fields", context.arg("fields"))
    if not (fields is None or isinstance(fields, str)):
        raise BadRequest("fields must be a string like 'a:b'.")
    return WriteBody(media, b"", body, _append(count, dim), fields)


def _append(count: Any, dim: Any) -> Append | None:
    if count is None or count is False:
        return None
    for name, value in (("append", count), ("append_dim", dim or 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadRequest(f"{name} must be a non-negative integer, not {value!r}.")
    return Append(count, dim or 0)


def selected_values(context: Context, body: WriteBody, dataset: Dataset) -> tuple[Selection, Values]:
    """Return the selection that a write names in the dataset's extent, and its values.

    The values have the selection's shape, or are one for all.
    """
    fields = parse_fields(body.fields, dataset.dtype)
    if body.media is Media.ARROW or (body.media is Media.BINARY and context.flag("sparse")):
        if fields:
            raise BadRequest("Sparse values are whole elements; leave out fields.")
        return (_arrow if body.media is Media.ARROW else _structured)(body.data, dataset)
    selection = _selection(context, body, dataset)
    return selection, _values(context, body, dataset, selection, fields)


def _arrow(data: bytes | bytearray, dataset: Dataset) -> tuple[Selection, Values]:
    coords: NDArray[np.uint64]
    values: Values
    rank = len(dataset.extent)
    if dataset.is_variable:
        coords, values = read_variable_arrow(data, rank, dataset.spec.datatype.element)
    else:
        coords, values = read_arrow(data, rank, dataset.dtype)
    return Points(dataset.extent, coords), values


def _structured(data: bytes | bytearray, dataset: Dataset) -> tuple[Selection, Values]:
    selection: Selection
    values: Values
    try:
        if dataset.is_variable:
            selection, values = decode_vlen_region(data, dataset.spec.datatype.element)
        else:
            selection, values = decode_region(data, dataset.dtype)
    except Corrupt as error:
        raise BadRequest(f"The body is not a structured chunk's bytes: {error.message}") from error
    if selection.extent != dataset.extent:
        raise BadRequest(
            f"The body selects in {list(selection.extent)}; the extent is {list(dataset.extent)}."
        )
    return selection, values.reshape(selection.shape)


def _selection(context: Context, body: WriteBody, dataset: Dataset) -> Selection:
    extent = dataset.extent
    if body.append is not None:
        if context.arg("select") or set(body.json) & {"select", "points", "start", "stop", "step"}:
            raise BadRequest("What is appended goes to the end: leave out select and points.")
        return _appended(extent, body.append)
    select = body.json.get("select", context.arg("select"))
    given = {"select": select, "points": body.json.get("points")}
    named = [key for key, value in given.items() if value is not None]
    if any(key in body.json for key in ("start", "stop", "step")):
        named.append("start/stop/step")
    if len(named) > 1:
        raise BadRequest(f"Name the elements once: {' and '.join(named)} are given.")
    if named == ["points"]:
        return points_selection(body.json["points"], extent)
    if named == ["start/stop/step"]:
        return stepped_selection(body.json, extent)
    return select_selection(select, extent)


def _appended(extent: tuple[int, ...], append: Append) -> Selection:
    axes = [Span.range(0, length) for length in extent]
    axes[append.dim] = Span.range(extent[append.dim] - append.count, extent[append.dim])
    return Orthogonal(extent, tuple(axes))


def select_selection(select: Any, extent: tuple[int, ...]) -> Selection:
    """Return the selection of a body's or a query's `select`: all when it is not given."""
    if select is not None and not isinstance(select, str):
        raise BadRequest("select must be a string like '[0:10,5]'.")
    return parse_select(select, extent)


def points_selection(points: Any, extent: tuple[int, ...]) -> Points:
    """Return the points of a body: a list of numbers (rank 1) or of lists of `rank` numbers."""
    try:
        coords = np.array(points)
    except ValueError as error:
        raise BadRequest(f"points must be a list of coordinates, {len(extent)} each.") from error
    if coords.ndim < 2 and len(extent) != 1 and (coords.size or not extent):
        raise BadRequest(f"points must be a list of coordinates, {len(extent)} each.")
    return Points(extent, coords.reshape(-1, len(extent)) if coords.ndim < 2 else coords)


def stepped_selection(body: dict[str, Any], extent: tuple[int, ...]) -> Selection:
    """Return the hyperslab of a body's `start`, `stop` and `step`, each a number a dimension or left out."""
    rank = len(extent)
    start, stop, step = (
        _numbers(body.get(key), default, key)
        for key, default in (("start", (0,) * rank), ("stop", extent), ("step", (1,) * rank))
    )
    if not len(start) == len(stop) == len(step) == rank:
        raise BadRequest(f"start, stop and step need {rank} numbers each, as the dataset has dimensions.")
    axes = ",".join(f"{first}:{last}:{by}" for first, last, by in zip(start, stop, step, strict=True))
    return parse_select(f"[{axes}]", extent)


def _numbers(value: Any, default: tuple[int, ...], key: str) -> tuple[int, ...]:
    if value is None:
        return default
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in items):
        raise BadRequest(f"{key} must be a list of non-negative integers.")
    return tuple(items)


def _values(
    context: Context, body: WriteBody, dataset: Dataset, selection: Selection, fields: tuple[str, ...]
) -> Values:
    count = body.json.get("element_count", context.number("element_count"))
    if body.media is Media.BINARY:
        return _read_bytes(body.data, dataset, selection, count, fields)
    if "value_base64" in body.json:
        try:
            data = base64.b64decode(body.json["value_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadRequest("value_base64 is not base64 text.") from error
        return _read_bytes(data, dataset, selection, count, fields)
    if "value" not in body.json:
        raise BadRequest("The body has neither value nor value_base64.")
    if is_plain(dataset):
        return json_values(body.json["value"], dataset.dtype, selection)
    return typed_json(body.json["value"], dataset, selection, fields)


def _read_bytes(
    data: bytes | bytearray, dataset: Dataset, selection: Selection, count: Any, fields: tuple[str, ...]
) -> Values:
    wanted = selection.size if count is None else count
    if type(wanted) is not int or wanted not in (1, selection.size):
        raise BadRequest(
            f"element_count is {wanted}; it must be 1 or the {selection.size} elements selected."
        )
    if dataset.is_variable:
        return variable_bytes(data, dataset, selection, wanted, fields)
    return binary_values(data, packed_type(dataset.dtype, fields), selection, wanted)


def binary_values(
    data: bytes | bytearray, dtype: np.dtype[Any], selection: Selection, wanted: int
) -> NDArray[Any]:
    """Return `wanted` packed elements as an array: one for all, or each its own."""
    if len(data) != wanted * dtype.itemsize:
        raise BadRequest(
            f"The body has {len(data)} bytes; {wanted} elements of {dtype.itemsize} bytes need "
            f"{wanted * dtype.itemsize}."
        )
    values = np.frombuffer(data, np.uint8).view(dtype)
    return values.reshape(selection.shape) if wanted == selection.size else values


def json_values(value: Any, dtype: np.dtype[Any], selection: Selection) -> NDArray[Any]:
    """Return JSON numbers in the selection's shape, or one for all; `BadRequest` for what does not fit."""
    shape = selection.shape
    if not isinstance(value, list):
        shape = () if selection.size != 1 else shape
        value = value if not shape else [value]
    try:
        _check_fit(value, dtype)
        with np.errstate(over="raise", invalid="raise"):
            array: NDArray[Any] = np.asarray(jsonToArray(shape, dtype, value))
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError) as error:
        count = math.prod(shape)
        raise BadRequest(f"The value does not fit {count} elements of type {dtype}: {error}.") from error
    if array.dtype != dtype or array.size not in (1, selection.size):
        raise BadRequest(f"The value has {array.size} elements; {selection.size} are selected.")
    return array.reshape(selection.shape) if array.size == selection.size else array.reshape(1)


def _check_fit(value: Any, dtype: np.dtype[Any]) -> None:
    """Raise `ValueError` for fractions for integers, which numpy would cut to fit."""
    natural = np.array(value)
    if dtype.kind in "iu" and natural.size and natural.dtype.kind not in "iub":
        raise ValueError(f"{natural.dtype} values are not integers")
