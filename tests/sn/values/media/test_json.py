"""Values in JSON: the shapes in which they are taken, and how they are shown."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.selections.points import Orthogonal
from hsparse.format.value_arrays import is_finite, number_json
from hsparse.model.json_values import to_json
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import respond
from tests.model.type_strategies import text
from tests.sn.dataset_kinds import I8, I16, array_of, chunked, compound, vlen_of

ROW = np.dtype([("n", ">i4"), ("x", "<f8"), ("v", "<f4", (2,)), ("in", [("y", "<f2")])])


def shown(values: Any) -> Any:
    body = respond({"value": number_json(values)}).body
    assert isinstance(body, bytes)
    return json.loads(body)["value"]


@pytest.mark.parametrize("kind", ["i1", "<u2", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8", "?", "S3"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (2, 0)])
def test_values_are_shown_as_lists(kind: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    expected = values.astype("U3").tolist() if kind == "S3" else values.tolist()
    assert shown(values) == expected
    if shape:
        backwards = values[..., ::-1]
        assert shown(backwards) == (backwards.astype("U3") if kind == "S3" else backwards).tolist()


@pytest.mark.parametrize("kind", ["<f2", ">f4", "<f8"])
def test_floats_have_all_their_digits(kind: str) -> None:
    values = np.array([0.1, -5.579564096946176e16 if kind != "<f2" else 3.3, 1e-4], kind)
    assert (shown(values), shown(values[0])) == (values.tolist(), values[0].item())


def test_compound_elements_are_lists_of_fields() -> None:
    values = np.zeros(2, ROW)
    values["n"] = [1, 2]
    assert shown(values) == [[1, 0.0, [0.0, 0.0], [0.0]], [2, 0.0, [0.0, 0.0], [0.0]]]


def test_every_float_is_looked_at() -> None:
    assert is_finite(np.arange(3))
    assert is_finite(np.array([b"nan"]))
    assert not is_finite(np.array([1, np.inf]))
    for change in (("x", np.nan), ("v", np.inf), ("in", (np.nan,))):
        values = np.zeros(3, ROW)
        assert is_finite(values)
        values[change[0]][1] = change[1]
        assert not is_finite(values)


def test_bytes_that_are_no_text_are_not_shown() -> None:
    with pytest.raises(BadRequest, match="octet-stream"):
        number_json(np.array([b"\xff"]))


TEXT = text("H5T_VARIABLE")
PAIR = compound(n=I8, t=TEXT)


def typed_json(value: Any, one: StoredDataset, selection: Orthogonal, fields: tuple[str, ...] = ()) -> Any:
    return one.arrays.of_fields(fields).from_json(value, selection.shape)


def dataset(item: Any, *dims: int) -> StoredDataset:
    shape = {"class": "H5S_SIMPLE", "dims": list(dims)}
    layout = chunked(*dims)
    return StoredDataset.of({"id": "d-1", "type": item, "shape": shape, "layout": layout})


@pytest.mark.parametrize(
    ("item", "fields", "value", "stored"),
    [
        (TEXT, (), [["a", "b"]], [["a", "b"]]),
        (TEXT, (), ["a", "b"], [["a", "b"]]),
        (TEXT, (), "all", ["all"]),
        (TEXT, (), ["all"], ["all"]),
        (vlen_of(I8), (), [1, 2], [[1, 2]]),
        (PAIR, (), [[1, "a"], [2, "b"]], [[[1, "a"], [2, "b"]]]),
        (PAIR, (), [1, "a"], [[1, "a"]]),
    ],
)
def test_of_variable_length(item: Any, fields: tuple[str, ...], value: Any, stored: Any) -> None:
    one = dataset(item, 1, 2)
    found = typed_json(value, one, Orthogonal.all(one.extent), fields)
    assert isinstance(found, VlenArray)
    assert to_json(found, one.spec.datatype.element) == stored
    assert not one.arrays.is_exact


@pytest.mark.parametrize(
    ("fields", "value", "pieces"),
    [
        (("n",), [3, 4], [b"\3", b"\4"]),
        (("n",), [[3], [4]], [b"\3", b"\4"]),
        (("n",), 5, [b"\5"]),
        (("t",), ["a", ""], [b"\1\0\0\0a", bytes(4)]),
        (("t", "n"), [["a", 1], ["", 2]], [b"\1\0\0\0a\1", bytes(4) + b"\2"]),
    ],
)
def test_some_fields(fields: tuple[str, ...], value: Any, pieces: list[bytes]) -> None:
    one = dataset(PAIR, 2)
    found = typed_json(value, one, Orthogonal.all(one.extent), fields)
    assert isinstance(found, VlenArray)
    assert list(found) == pieces


def test_an_array_is_one_element() -> None:
    one = dataset(array_of(I16, 2), 3)
    found = typed_json([[1, 2], [3, 4], [5, 6]], one, Orthogonal.all(one.extent))
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (np.dtype("V4"), (3,))
    assert found.tobytes() == np.arange(1, 7, dtype="<i2").tobytes()


@pytest.mark.parametrize("value", [1, ["a", "b", "c"], [["a"], ["b"]], {}])
def test_what_does_not_fit(value: Any) -> None:
    one = dataset(TEXT, 2)
    with pytest.raises(BadRequest):
        typed_json(value, one, Orthogonal.all(one.extent))
