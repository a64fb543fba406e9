"""JSON bodies: the shapes in which values of any type are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.selections.points import Orthogonal
from hsparse.model.json_values import to_json
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.records.dataset import StoredDataset
from tests.model.type_strategies import text

TEXT = text("H5T_VARIABLE")
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "n", "type": "H5T_STD_I8LE"}, {"name": "t", "type": TEXT}],
}


def typed_json(value: Any, one: StoredDataset, selection: Orthogonal, fields: tuple[str, ...] = ()) -> Any:
    return one.arrays.of_fields(fields).from_json(value, selection.shape)


def dataset(item: Any, *dims: int) -> StoredDataset:
    shape = {"class": "H5S_SIMPLE", "dims": list(dims)}
    layout = {"class": "H5D_CHUNKED", "dims": list(dims)}
    return StoredDataset.of({"id": "d-1", "type": item, "shape": shape, "layout": layout})


@pytest.mark.parametrize(
    ("item", "fields", "value", "stored"),
    [
        (TEXT, (), [["a", "b"]], [["a", "b"]]),
        (TEXT, (), ["a", "b"], [["a", "b"]]),
        (TEXT, (), "all", ["all"]),
        (TEXT, (), ["all"], ["all"]),
        ({"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, (), [1, 2], [[1, 2]]),
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
    one = dataset({"class": "H5T_ARRAY", "dims": [2], "base": "H5T_STD_I16LE"}, 3)
    found = typed_json(
        [[1, 2], [3, 4], [5, 6]],
        one,
        Orthogonal.all(one.extent),
    )
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (np.dtype("V4"), (3,))
    assert found.tobytes() == np.arange(1, 7, dtype="<i2").tobytes()


@pytest.mark.parametrize("value", [1, ["a", "b", "c"], [["a"], ["b"]], {}])
def test_what_does_not_fit(value: Any) -> None:
    one = dataset(TEXT, 2)
    with pytest.raises(BadRequest):
        typed_json(
            value,
            one,
            Orthogonal.all(one.extent),
        )
