"""h5pyd against a server: datasets, links, compound types and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5pyd
import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.support.server_process import server_process

HOME = "/home/admin/"


class Files:
    """Opens files of one name as h5pyd does."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.options: dict[str, Any] = {
            "endpoint": endpoint,
            "username": "admin",
            "password": "any",
            "retries": 1,
        }
        self.path = HOME + name

    def __call__(self, mode: str) -> Any:
        return h5pyd.File(self.path, mode, **self.options)


@pytest.fixture
def files(endpoint: str, request: pytest.FixtureRequest) -> Files:
    return Files(endpoint, request.node.originalname + ".h5")


KINDS = ["i1", "<u2", ">i4", "<i8", "u8", "<f2", ">f4", "<f8", "?", "S7"]


@pytest.mark.parametrize("kind", KINDS)
def test_types_come_back(files: Files, kind: str) -> None:
    data = (np.arange(24).reshape(4, 6) % 2).astype(kind)
    with files("w") as file:
        file.create_dataset("x", data=data)
        file.create_dataset("chunked", data=data, chunks=(2, 4), compression="gzip", shuffle=True)
    with files("r") as file:
        for name in ("x", "chunked"):
            assert file[name].dtype == data.dtype
            np.testing.assert_array_equal(file[name][...], data)
            np.testing.assert_array_equal(file[name][1:3, ::2], data[1:3, ::2])
            np.testing.assert_array_equal(file[name][2], data[2])


def test_compound_datasets(files: Files) -> None:
    kind = np.dtype([("id", "<i4"), ("xyz", "<f8", (3,)), ("name", "S5"), ("ok", "?")])
    data = np.zeros(10, kind)
    data["id"], data["xyz"], data["name"], data["ok"] = (
        np.arange(10),
        np.arange(30).reshape(10, 3),
        b"abc",
        True,
    )
    with files("w") as file:
        file.create_dataset("t", data=data)
    with files("a") as file:
        np.testing.assert_array_equal(file["t"][...], data)
        file["t"][3:5] = data[5:7]
    data[3:5] = data[5:7]
    with files("r") as file:
        np.testing.assert_array_equal(file["t"][2:8], data[2:8])
        np.testing.assert_array_equal(file["t"]["id"], data["id"])
        np.testing.assert_array_equal(file["t"][2:8, "xyz"], data["xyz"][2:8])


def test_selections(files: Files) -> None:
    model = np.full((100, 60), 7, "<i4")
    with files("w") as file:
        options = {"chunks": (30, 25), "compression": "gzip", "fillvalue": 7, "maxshape": (None, 60)}
        dataset = file.create_dataset("x", model.shape, model.dtype, **options)
        for index in (np.s_[3:90:5, ::7], np.s_[50], np.s_[:, 3:9], np.s_[2:4, 1:2]):
            model[index] = np.arange(model[index].size).reshape(model[index].shape)
            dataset[index] = model[index]
        file.flush()
        for index in (
            np.s_[:],
            np.s_[10:20, 5:50:3],
            np.s_[[1, 5, 99], 2:9],
            np.s_[4:9, [0, 59]],
            np.s_[99, 59],
        ):
            np.testing.assert_array_equal(dataset[index], model[index])
        mask = model > 10
        np.testing.assert_array_equal(np.sort(dataset[mask]), np.sort(model[mask]))


def test_resizing(files: Files) -> None:
    with files("w") as file:
        file.create_dataset(
            "x", data=np.arange(40).reshape(8, 5), chunks=(3, 3), maxshape=(None, 10), fillvalue=-1
        )
    model = np.full((20, 10), -1)
    model[:8, :5] = np.arange(40).reshape(8, 5)
    for shape in ((12, 10), (5, 4), (20, 10)):
        with files("a") as file:
            file["x"].resize(shape)
        model[shape[0] :], model[:, shape[1] :] = -1, -1
        with files("r") as file:
            np.testing.assert_array_equal(file["x"][...], model[: shape[0], : shape[1]])


ATTRIBUTES = {
    "text": "hé llo",
    "bytes": np.bytes_(b"abc"),
    "number": 42,
    "float": np.float32(1.5),
    "array": np.arange(6, dtype="<i2").reshape(2, 3),
    "strings": np.array([b"a", b"bcd"]),
    "flag": True,
}


def test_attributes(files: Files) -> None:
    with files("w") as file:
        group = file.create_group("g")
        for target in (file, group, group.create_dataset("d", data=1.0)):
            for name, value in ATTRIBUTES.items():
                target.attrs[name] = value
            target.attrs["gone"] = 1
            target.attrs["number"] = 43
            del target.attrs["gone"]
    with files("r") as file:
        for target in (file, file["g"], file["g/d"]):
            assert (set(target.attrs), target.attrs["number"]) == (set(ATTRIBUTES), 43)
            for name, value in ATTRIBUTES.items():
                if name != "number":
                    np.testing.assert_array_equal(target.attrs[name], value)


def test_walking_links_and_deleting(files: Files) -> None:
    with files("w") as file:
        for path in ("a/b/c", "a/d", "e"):
            file.create_group(path)
        file.create_dataset("a/b/x", data=np.arange(3))
        file["hard"] = file["a/b/x"]
        file["soft"] = h5pyd.SoftLink("/a/b/x")
        file["away"] = h5pyd.ExternalLink("/home/admin/other.h5", "/x")
    with files("a") as file:
        found: list[str] = []
        file.visit(lambda name: found.append(name))
        assert {"a", "a/b", "a/b/c", "a/d", "e"} <= set(found)
        assert (set(file), file["hard"]) == ({"a", "e", "hard", "soft", "away"}, file["a/b/x"])
        np.testing.assert_array_equal(file["soft"][...], [0, 1, 2])
        assert file.get("soft", getlink=True).path == "/a/b/x"
        assert file.get("away", getlink=True).filename == "/home/admin/other.h5"
        assert file["a/b/x"].parent.name == "/a/b"
        # h5pyd 1.0.0 takes a link for one of its own that was never sent until its first flush
        file.flush()
        del file["a"]["d"]
        del file["e"]
    with files("r") as file:
        assert (set(file), set(file["a"])) == ({"a", "hard", "soft", "away"}, {"b"})
        with pytest.raises(KeyError):
            file["e"]


def test_committed_types(files: Files) -> None:
    kind = np.dtype([("n", "<i4"), ("v", "<f8")])
    with files("w") as file:
        file["kind"] = kind
        file.create_dataset("x", (4,), file["kind"])
    with files("r") as file:
        assert isinstance(file["kind"], h5pyd.Datatype)
        assert file["x"].dtype == kind


def test_modes(files: Files) -> None:
    with pytest.raises(OSError, match=r".*"):
        files("r")
    with files("x") as file:
        file.create_group("g")
    with pytest.raises(OSError, match=r".*"):
        files("x")
    with files("r+") as file:
        assert "g" in file
    with files("r") as file, pytest.raises((ValueError, OSError)):
        file.create_group("h")
    with files("w") as file:
        assert len(file) == 0


def test_folders(endpoint: str) -> None:
    options = {"endpoint": endpoint, "username": "admin", "password": "any"}
    h5pyd.Folder(HOME + "made/", mode="w", **options)
    with h5pyd.File(HOME + "made/one.h5", "w", **options):
        pass
    assert list(h5pyd.Folder(HOME + "made/", **options)) == ["one.h5"]
    with pytest.raises(OSError, match=r".*"):
        del h5pyd.Folder(HOME, mode="a", **options)["made"]
    h5pyd.Folder(HOME + "made/", mode="a", **options)
    del h5pyd.Folder(HOME + "made/", mode="a", **options)["one.h5"]
    assert list(h5pyd.Folder(HOME + "made/", **options)) == []


def test_a_sparse_dataset_through_chunks(files: Files) -> None:
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [64, 64], "flags": ["H5D_SPARSE_DATA"]}
    rng = np.random.default_rng(0)
    model = np.full((1000, 500), -1.0)
    with files("w") as file:
        dataset = file.create_dataset("s", model.shape, "<f8", chunks=layout, fillvalue=-1.0)
        for row, column in ((0, 0), (500, 60), (960, 440)):
            model[row : row + 40, column : column + 60] = rng.random((40, 60))
            dataset[row : row + 40, column : column + 60] = model[row : row + 40, column : column + 60]
    with files("r") as file:
        np.testing.assert_array_equal(file["s"][...], model)
        np.testing.assert_array_equal(file["s"][490:550, 50:130], model[490:550, 50:130])
        np.testing.assert_array_equal(file["s"][[0, 505, 999], 400:500], model[[0, 505, 999], 400:500])


def test_a_resizable_sparse_dataset_is_used_and_resized_elsewhere(files: Files, endpoint: str) -> None:
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [4, 4], "flags": ["H5D_SPARSE_DATA"]}
    with files("w") as file, pytest.raises(ValueError, match="Only datasets with 'H5D_CHUNKED' layout"):
        file.create_dataset("x", (10, 10), "<i4", maxshape=(None, 10), chunks=layout)
    with Connection(endpoint, files.path, user="admin", password="any") as connection:
        made = SparseDataset.create(connection, "/s", (10, 10), "<i4", (4, 4), maxshape=(None, 10))
        with files("a") as file:
            dataset = file["s"]
            assert dataset.maxshape == (None, 10)
            with pytest.raises(TypeError, match="Only chunked datasets can be resized"):
                dataset.resize((20, 10))
        made.extend(10)
        with files("a") as file:
            dataset = file["s"]
            assert dataset.shape == (20, 10)
            dataset[18:20, 0:3] = 7
        with files("r") as file:
            assert file["s"][19].tolist() == [7] * 3 + [0] * 7
        assert made.count() == 6


FLAGS = [["H5D_SPARSE_DATA"], ["H5D_SPARSE_DATA", "H5D_VL_DATA"], ["H5D_VL_DATA"]]


@pytest.mark.parametrize("flags", FLAGS, ids=["sparse", "sparse, named", "dense"])
def test_variable_length_data_in_structured_chunks(files: Files, flags: list[str]) -> None:
    """Undefined elements are the fill value, here none: empty."""
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [40, 8], "flags": flags}
    rng = np.random.default_rng(0)
    words = np.full((200, 20), "", object)
    lists = np.empty((500,), object)
    for place in range(500):
        lists[place] = np.zeros(0, "<i4")
    with files("w") as file:
        text = file.create_dataset("t", words.shape, h5pyd.string_dtype(), chunks=layout)
        numbers = file.create_dataset(
            "n", lists.shape, h5pyd.special_dtype(vlen=np.dtype("<i4")), chunks=layout | {"dims": [70]}
        )
        for row, column in ((0, 0), (70, 6), (180, 12)):
            part = np.array([["ä" * int(n) for n in row] for row in rng.integers(0, 9, (20, 8))], object)
            words[row : row + 20, column : column + 8] = part
            text[row : row + 20, column : column + 8] = part
        for place in (3, 69, 71, 499):
            lists[place] = rng.integers(-9, 9, place % 7 + 1).astype("<i4")
            numbers[place] = lists[place]
    with files("r") as file:
        np.testing.assert_array_equal(as_text(file["t"][...]), words)
        np.testing.assert_array_equal(as_text(file["t"][75:95, 4:9]), words[75:95, 4:9])
        for got, wanted in zip(file["n"][...], lists, strict=True):
            np.testing.assert_array_equal(got, wanted)


def as_text(values: np.ndarray) -> np.ndarray:
    """Return strings where h5pyd gives bytes, and "" where it gives 0."""
    flat = [word.decode() if isinstance(word, bytes) else word or "" for word in values.reshape(-1)]
    return np.array(flat, object).reshape(values.shape)


def test_a_reader_that_opened_before_sees_growth_by_refresh(files: Files) -> None:
    """h5pyd 1.0 keeps `domain_objs` as it was at the opening; that of a domain which changes is left out."""
    with files("w") as writer:
        grows = writer.create_dataset("x", (0,), "<i4", maxshape=(None,))
        writer.flush()
        with files("r") as reader:
            seen = reader["x"]
            assert seen.shape == (0,)
            grows.resize((4,))
            grows[...] = np.arange(4)
            writer.flush()
            seen.refresh()
            assert seen.shape == (4,)
            np.testing.assert_array_equal(seen[...], np.arange(4))


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that holds a body of 1 MiB at most."""
    options = ["--root", str(tmp_path_factory.mktemp("root")), "--no-fsync", "--max-request-size", "1MiB"]
    with server_process(*options) as server:
        yield server.url
        assert server.stop() == 0


@pytest.mark.parametrize(
    "data",
    [
        np.arange(400_000, dtype="f8"),
        np.arange(400_000, dtype="<i8").reshape(2, -1),
        np.arange(400_000, dtype="<i8").view([("a", "<i4"), ("b", "<f4")]),
    ],
    ids=["numbers", "wide rows", "compound"],
)
def test_an_array_is_larger_than_the_server_holds(
    small_server: str, data: np.ndarray[Any, Any], request: pytest.FixtureRequest
) -> None:
    """h5pyd sends all of an array in one request."""
    files = Files(small_server, f"large-{request.node.callspec.id.replace(' ', '-')}.h5")
    with files("w") as file:
        file.create_dataset("x", data=data)
        file.create_dataset("y", data.shape, data.dtype, compression="gzip")[...] = data
    with files("r") as file:
        for name in ("x", "y"):
            assert np.array_equal(file[name][...].view("u8"), data.view("u8"))


def test_a_dataset_with_a_lower_bound_begins_at_0(endpoint: str, files: Files) -> None:
    """A client that does not know of signed places sees it shifted, and appends and resizes at the upper end."""
    layout = {"class": "H5D_CHUNKED", "dims": [4], "enlarge": False}
    with files("w"), Connection(endpoint, files.path, user="admin", password="any") as connection:
        body = {
            "type": "H5T_STD_I32LE",
            "shape": [10],
            "maxdims": [0],
            "lower": [-5],
            "minlower": ["H5S_UNLIMITED"],
        }
        place = {"h5path": "/s", "creationProperties": {"layout": layout}}
        path = f"/datasets/{connection.json('POST', '/datasets', body=body | place)['id']}"
        values = {"value": list(range(-5, 5))}
        connection.json("PUT", f"{path}/value", body=values, places="signed")
        with files("a") as file:
            dataset = file["s"]
            assert (dataset.shape, dataset.maxshape, dataset.chunks) == ((10,), (None,), (4,))
            np.testing.assert_array_equal(dataset[...], np.arange(-5, 5))
            np.testing.assert_array_equal(dataset[2:9:3], [-3, 0, 3])
            assert (dataset[0], dataset[-1]) == (-5, 4)
            dataset[1] = 40
            dataset.resize((12,))
            dataset[10:] = [50, 51]
        more = {"append": 2, "append_side": "lower", "value": [60, 61]}
        connection.json("PUT", f"{path}/value", body=more, places="signed")
        with files("r") as file:
            assert file["s"][...].tolist() == [60, 61, -5, 40, *range(-3, 5), 50, 51]


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
        assert (found, list(table.read_where("n < 0"))) == ([model[2], *model[297:]], [])
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
