"""h5pyd 1.0.0's tables, field and mask selections, unmodified, against a real server and numpy."""

from __future__ import annotations

from typing import Any

import h5pyd
import numpy as np
import pytest

from tests.clients.test_h5pyd import Files, files

__all__ = ["files"]

ROW = np.dtype([("date", "<i8"), ("price", "<f8"), ("symbol", "S4")])
COUNT = 5000


def rows() -> np.ndarray:
    values = np.zeros(COUNT, ROW)
    values["date"] = np.arange(COUNT)
    values["price"] = np.arange(COUNT) * 0.5
    values["symbol"] = [b"AAPL", b"EBAY", b"AMZN", b"X", b"Y"] * (COUNT // 5)
    return values


@pytest.fixture
def model(files: Files) -> np.ndarray:
    """The rows of a table that is there when the test begins."""
    with files("w") as file:
        table = file.create_table("t", numrows=COUNT, dtype=ROW)
        table[...] = rows()
    return rows()


def found(table: Any, condition: str, **options: Any) -> np.ndarray:
    return np.array([tuple(row) for row in table.read_where(condition, **options)], ROW)


def test_reading_rows_by_a_condition(files: Files, model: np.ndarray) -> None:
    with files("r") as file:
        table = file["t"]
        assert isinstance(table, h5pyd.Table)
        expensive = (model["price"] > 2400) & (model["symbol"] == b"AAPL")
        np.testing.assert_array_equal(found(table, "price > 2400 & symbol == b'AAPL'"), model[expensive])
        few = np.isin(model["symbol"], [b"EBAY", b"X"])
        np.testing.assert_array_equal(found(table, "symbol in (b'EBAY', b'X')"), model[few])
        np.testing.assert_array_equal(found(table, "where symbol in (b'EBAY', b'X')"), model[few])
        np.testing.assert_array_equal(found(table, "~(date >= 3)"), model[:3])
        np.testing.assert_array_equal(found(table, "date >= 0", start=10, stop=30), model[10:30])
        np.testing.assert_array_equal(
            found(table, "symbol == X", limit=3), model[model["symbol"] == b"X"][:3]
        )
        assert len(found(table, "symbol == b'none'")) == 0
        assert table.get_where_list("price < 3") == [0, 1, 2, 3, 4, 5]
        for bad in ("nosuch == 1", "price >", "price > __import__('os')"):
            with pytest.raises(OSError, match="400"):
                found(table, bad)


def test_changing_rows_by_a_condition(files: Files, model: np.ndarray) -> None:
    with files("a") as file:
        table = file["t"]
        assert table.update_where("symbol == b'X'", {"price": -1.0}, limit=3).ravel().tolist() == [3, 8, 13]
        model["price"][[3, 8, 13]] = -1
        changed = table.update_where("symbol == b'Y'", {"price": -2.0, "symbol": "ZZ"}, start=0, stop=100)
        assert changed.ravel().tolist() == list(range(4, 100, 5))
        model["price"][4:100:5], model["symbol"][4:100:5] = -2, b"ZZ"
    with files("r") as file:
        np.testing.assert_array_equal(file["t"][...], model)
        np.testing.assert_array_equal(found(file["t"], "price < 0"), model[model["price"] < 0])


def test_appending_rows_and_reading_on(files: Files, model: np.ndarray) -> None:
    with files("a") as file:
        file["t"].append(model[:3])
    with files("r") as file:
        table = file["t"]
        assert table.nrows == COUNT + 3
        assert [tuple(row) for row in table.read(start=COUNT - 1)] == [
            *model[-1:].tolist(),
            *model[:3].tolist(),
        ]
        assert len(found(table, "date == 1")) == 2


def test_some_fields_are_written(files: Files, model: np.ndarray) -> None:
    with files("a") as file:
        table = file["t"]
        table[5:10, "price"] = np.arange(5) * 7.0
        model["price"][5:10] = np.arange(5) * 7
        some = np.array([(5, 6.0), (7, 8.0)], [("date", "<i8"), ("price", "<f8")])
        table[0:2, "date", "price"] = some
        model["date"][:2], model["price"][:2] = some["date"], some["price"]
        table[20:30, "symbol"] = np.bytes_(b"one")
        model["symbol"][20:30] = b"one"
    with files("r") as file:
        np.testing.assert_array_equal(file["t"][...], model)
        np.testing.assert_array_equal(file["t"]["price"], model["price"])
        np.testing.assert_array_equal(file["t"].fields(["symbol", "date"])[3:9]["date"], model["date"][3:9])


INDICES = {
    "mask": lambda model: model % 7 == 0,
    "one list": lambda model: np.s_[:, [1, 5, 9]],
    "two lists": lambda model: ([1, 3, 5], [2, 4, 6]),
    "steps": lambda model: np.s_[::2, 1::3],
    "a long list": lambda model: np.s_[list(range(0, 300, 2)), 3:5],
}


@pytest.mark.parametrize("name", INDICES)
def test_masks_lists_and_steps(files: Files, name: str) -> None:
    model = np.arange(3000).reshape(300, 10)
    with files("w") as file:
        file.create_dataset("x", data=model, chunks=(70, 10))
    index = INDICES[name](model)
    with files("a") as file:
        np.testing.assert_array_equal(file["x"][index], model[index])
        file["x"][index] = -5
        model[index] = -5
    with files("r") as file:
        np.testing.assert_array_equal(file["x"][...], model)


def test_queries_of_elements_without_fields(files: Files) -> None:
    model = np.arange(60).reshape(6, 10)
    with files("w") as file:
        file.create_dataset("x", data=model)
        floats = file.create_dataset("floats", data=np.array([1.0, np.nan, np.inf]))
        floats.attrs["values"] = np.array([np.nan, 2.0])
    with files("r") as file:
        np.testing.assert_array_equal(file["x"].query("_ > 55"), np.argwhere(model > 55))
        np.testing.assert_array_equal(file["floats"][...], [1.0, np.nan, np.inf])
        np.testing.assert_array_equal(file["floats"].attrs["values"], [np.nan, 2.0])


def test_tables_with_fields_of_variable_length(files: Files) -> None:
    text = h5pyd.special_dtype(vlen=str)
    kind = np.dtype([("n", "<i4"), ("word", text), ("list", h5pyd.special_dtype(vlen=np.dtype("<f8")))])
    model = [(n, b"w" * (n % 5 + 1), [0.5] * (n % 3 + 1)) for n in range(300)]
    with files("w") as file:
        table = file.create_table("t", numrows=300, dtype=kind)
        values = np.empty(300, kind)
        for n, word, numbers in model:
            values[n] = (n, word.decode(), np.array(numbers))
        table[...] = values
    with files("a") as file:
        table = file["t"]
        found = [
            (row["n"], row["word"], row["list"].tolist()) for row in table.read_where("n > 296 | n == 2")
        ]
        assert found == [model[2], *model[297:]]
        assert list(table.read_where("n < 0")) == []
        assert table.get_where_list("n < 3") == [0, 1, 2]
        assert table[2:4, "word"].tolist() == [b"www", b"wwww"]
        assert table.update_where("n == 5", {"n": -5}).ravel().tolist() == [5]
        with pytest.raises(OSError, match="400"):
            list(table.read_where("word == 'w'"))
    with files("r") as file:
        assert file["t"][5].tolist()[:2] == (-5, b"w")
        some = file["t"].fields(["word", "n"])[4:6]
        assert list(zip(some["word"].tolist(), some["n"].tolist(), strict=True)) == [
            (b"wwwww", 4),
            (b"w", -5),
        ]
