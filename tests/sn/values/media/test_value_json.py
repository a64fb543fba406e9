"""Values in JSON, floats that JSON has no number for included."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.value_arrays import is_finite, number_json
from hsparse.sn.request import respond

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
    assert shown(values) == values.tolist()
    assert shown(values[0]) == values[0].item()


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
