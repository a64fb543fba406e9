"""Datasets and groups that are created: sent together, seen once they are whole, and not at all if that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.errors import AlreadyExists, Unreachable, WrongType
from hsparse.errors import BadRequest, OverQuota, StoreFailed
from tests.client.access_ways import is_stored, open_file

Make = Callable[..., Any]


def make(file: hsparse.File, count: int) -> None:
    for number in range(count):
        group = file.create_group(f"runs/{number}", {"number": number})
        group.attrs["beam"] = "on"
        group.create_dataset("times", data=np.arange(3.0) + number, attributes={"unit": "s"})
        group.create_sparse("x", (4, 5), "u2", attributes={"unit": "K"})
        group["words"] = ["a", "é" * number]


def check(file: Any, count: int) -> None:
    assert len(file["runs"]) == count
    for number in (0, count - 1):
        group = file[f"runs/{number}"]
        assert dict(group.attrs) == {"number": number, "beam": "on"}
        assert group["times"][...].tolist() == [number, number + 1, number + 2]
        assert (group["times"].attrs["unit"], group["x"].attrs["unit"]) == ("s", "K")
        assert group["words"][...].tolist() == ["a", "é" * number]


def test_an_object_takes_one_request(file: hsparse.File, requests: list[str]) -> None:
    make(file, 2)
    sent = [*requests]
    of_each = [
        ["POST /groups", f"PUT /groups/{file[f'runs/{number}'].id}/attributes", *["POST /datasets"] * 3]
        for number in range(2)
    ]
    assert sent == [*of_each[0], *of_each[1]]
    check(file, 2)


def test_a_batch_takes_a_request_for_each_kind(file: hsparse.File, requests: list[str]) -> None:
    with file.batch(), file.batch():
        make(file, 300)
        file.attrs["title"] = "many"
    assert [one.partition("g-")[0] for one in requests] == ["POST /groups", "POST /datasets", "PUT /groups/"]
    check(file, 300)
    assert file.attrs["title"] == "many"


def test_a_read_sees_what_waits(file: hsparse.File) -> None:
    with file.batch():
        group = file.create_group("a/b")
        made = group.create_dataset("x", (4, 3), "f4", chunks=(2, 3), compression="gzip", fillvalue=2)
        assert (made.shape, made.fillvalue, made.maxshape, made.compression) == ((4, 3), 2, (4, 3), "gzip")
        assert made.chunks is not None
        made[0] = 7
        assert group["x"][:2].tolist() == [[7, 7, 7], [2, 2, 2]]  # type: ignore[index]
        assert file.create_dataset("a/big", data=np.arange(400_000.0))[-1] == 399_999
        assert file.require_group("a/b") == group
        group.attrs["n"] = 1
        assert group.attrs["n"] == 1
        seen: list[Any] = []
        file.create_group("late")
        thread = threading.Thread(target=lambda: seen.append("late" in file))
        thread.start()
        thread.join()
        assert seen == [True]
        grown = file.create_sparse("grown", (0, 4), "f4", maxshape=(None, 4))
        assert grown.append(np.ones((2, 4), "f4")) == slice(0, 2)


def make_groups(file: hsparse.File, *names: Any) -> None:
    with file.batch():
        for name in names:
            file.create_group("/" + name)


def test_errors_of_a_batch(file: hsparse.File) -> None:
    file.create_group("there")
    for error, names in (
        (FileExistsError, ("a", "a")),
        (hsparse.Conflict, ("fine", "there")),
        (TypeError, ("waits", 1)),
    ):
        with pytest.raises(error):
            make_groups(file, *names)
        assert list(file) == ["there"]
    with file.batch():
        file.create_group("closed")
        file.close()
    with hsparse.open(f"{file.connection.url}{file.filename}", "r") as again:
        assert sorted(again) == ["closed", "there"]


# --- with their values ----------------------------------------------------------------------------------


class Sent:
    """The requests of a test: some raise `error`, `seen` is what the file had when values came."""

    def __init__(
        self,
        file: hsparse.File,
        patch: pytest.MonkeyPatch,
        error: BaseException | None = None,
        end: str = "/value",
    ) -> None:
        """Raise the error at every PUT whose path has this end."""
        self.error, self.changes = error, 0
        self.ids: list[str] = []
        self.seen: list[list[str]] = []
        send = Connection.json

        def json(connection: Connection, method: str, path: str, *args: Any, **params: Any) -> Any:
            if method == "PUT" and path.endswith("/value"):
                self.seen.append(sorted(file.records()))
            if method == "PUT" and path.endswith(end) and self.error:
                raise self.error
            self.changes += method != "GET"
            answer = send(connection, method, path, *args, **params)
            if (method, path) == ("POST", "/datasets"):
                self.ids += [made["id"] for made in answer.get("objects", [answer])]
            return answer

        patch.setattr(Connection, "json", json)


BIG = np.arange(1_000_000.0)
SQUARE = BIG.reshape(1000, -1)
MAKERS: dict[str, Make] = {
    "assign": lambda file: file.__setitem__("a/b/x", BIG),
    "create": lambda file: file.create_dataset(
        "a/b/x", data=SQUARE, chunks=(100, 100), attributes={"unit": "s"}
    ),
    "texts": lambda file: file.require_group("a").create_dataset(
        "b/x", data=np.array(["long" * 1000] * 1000, object)
    ),
    "matrix": lambda file: hsparse.from_scipy(file, "a/b/x", sp.csr_array(SQUARE), progress=False),
    "sparse": lambda file: file.create_sparse("a/b/x", data=SQUARE),
}


@pytest.mark.parametrize("way", MAKERS)
@pytest.mark.parametrize("end", ["/value", "/links"])
@pytest.mark.parametrize("error", [OverQuota("full"), KeyboardInterrupt()], ids=["over quota", "Ctrl-C"])
def test_nothing_is_left_of_one_that_is_not_filled(
    file: hsparse.File, monkeypatch: pytest.MonkeyPatch, way: str, end: str, error: BaseException
) -> None:
    sent = Sent(file, monkeypatch, error, end)
    with pytest.raises(type(error)):
        MAKERS[way](file)
    monkeypatch.undo()
    assert "a/b/x" not in file
    (made,) = sent.ids
    if end == "/links" and isinstance(error, KeyboardInterrupt):
        return  # the link may be there by then
    assert not is_stored(file, made)
    MAKERS[way](file)
    assert file["a/b/x"].size >= 1000  # type: ignore[union-attr]


def test_paths_from_the_root(file: hsparse.File) -> None:
    group = file.create_group("a/b")
    group["/c/x"] = group["c/x"] = BIG
    assert sorted(file.records()) == ["a", "a/b", "a/b/c", "a/b/c/x", "c", "c/x"]


@pytest.mark.parametrize("way", MAKERS)
def test_a_path_that_is_taken_is_found_before_values_are_sent(
    file: hsparse.File, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    file["a/b/x"] = 7
    Sent(file, monkeypatch, AssertionError())
    with pytest.raises(AlreadyExists):
        MAKERS[way](file)
    assert file["a/b/x"][()] == 7  # type: ignore[index]


def test_what_others_linked_meanwhile_stays(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = file.connection.json

    def json(method: str, path: str, body: Any = None, **params: Any) -> Any:
        found = whole(method, path, body, **params)
        if path.endswith("/value") and "x" not in list(file):
            whole("POST", "/datasets", {"type": "H5T_STD_I8LE", "h5path": "/x"})
        return found

    monkeypatch.setattr(file.connection, "json", json)
    with pytest.raises(AlreadyExists, match="exists"):
        file["x"] = BIG
    assert file["x"].shape == ()  # type: ignore[union-attr]


def test_it_stays_if_it_may_be_linked(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(file, monkeypatch, Unreachable("no answer"), "/links")
    with pytest.raises(Unreachable):
        file["x"] = BIG
    monkeypatch.undo()
    assert file.connection.json("GET", f"/datasets/{sent.ids[0]}")["shape"]["dims"] == [1_000_000]


def test_small_values_are_sent_with_the_creation(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    Sent(file, monkeypatch, AssertionError(), "")
    for number, data in enumerate([7, [0.5, 1.5], ["a", ""], "text", [True], np.zeros(3, "S4")]):
        file.create_dataset(f"{number}/x", data=data, attributes={"unit": "s"})
        found: Any = file[f"{number}/x"]
        assert np.array_equal(found[()], np.asarray(data))
        assert found.attrs["unit"] == "s"


def test_nothing_is_created_for_what_has_no_type(file: hsparse.File) -> None:
    with pytest.raises(WrongType):
        file["x"] = [object()]
    with pytest.raises(WrongType):
        file.create_dataset("x", data=[1], attributes={"a": object()})
    assert list(file) == []


# --- in the place of others -----------------------------------------------------------------------------

MATRIX = sp.random_array((40, 30), density=0.2, rng=np.random.default_rng(1)).tocsr()
ROWS = dask.array.from_array(MATRIX.toarray(), chunks=(10, -1))
SPARSE_ROWS = ROWS.map_blocks(sp.csr_array, meta=sp.csr_array((0, 0)))
WRITERS: dict[str, Make] = {
    "scipy": lambda file, path, **options: hsparse.from_scipy(file, path, MATRIX, **options),
    "dask, dense": lambda file, path, **options: hsparse.from_dask(file, path, ROWS, **options),
    "dask, sparse": lambda file, path, **options: hsparse.from_dask(file, path, SPARSE_ROWS, **options),
}
VALUES = np.arange(60_000.0)
ASSIGNED: dict[str, Make] = WRITERS | {
    "a matrix": lambda file, path: file.__setitem__(path, MATRIX),
    "an array": lambda file, path: file.__setitem__(path, VALUES),
    "a frame": lambda file, path: file.__setitem__(path, pd.DataFrame({"n": VALUES})),
    "create_dataset": lambda file, path: file.create_dataset(path, data=VALUES),
    "create_sparse": lambda file, path: file.create_sparse(path, data=MATRIX),
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Make:
    return WRITERS[request.param]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("path", ["x", "a/b/x"])
def test_nothing_is_left_of_a_write_that_fails(
    file: Any, write: Make, path: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if overwrite:
        file.create_dataset(path, data=[1, 2])
    before, sent = file.records(), Sent(file, monkeypatch, StoreFailed("The disk is full."))
    with pytest.raises(StoreFailed):
        write(file, path, overwrite=overwrite)
    assert file.records().keys() == before.keys()
    assert sent.ids
    assert not any(is_stored(file, id) for id in sent.ids)
    if overwrite:
        assert file[path][:].tolist() == [1, 2]


@pytest.mark.parametrize("old", ["nothing", "a dataset", "a group", "one with two names"])
def test_it_is_seen_once_it_is_whole_and_what_it_replaces_until_then(
    file: Any, write: Make, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "a/x/y" if old == "a group" else "a/x"
    replaced = None if old == "nothing" else file.create_dataset(path, data=[1, 2])
    if old == "one with two names":
        file["other"] = replaced
    before, sent = sorted(file.records()), Sent(file, monkeypatch)
    if replaced:
        with pytest.raises(AlreadyExists, match="overwrite=True"):
            write(file, "a/x")
        assert sent.changes == 0
    made = write(file, "a/x", overwrite=old != "nothing")
    assert sent.seen
    assert all(seen == before for seen in sent.seen)
    assert made.name == "/a/x"
    for found in (made, file["a/x"]):
        assert np.array_equal(found.to_numpy(), MATRIX.toarray())
    assert replaced is None or is_stored(file, replaced.id) == (old == "one with two names")


@pytest.mark.parametrize("path", ["x", "/a/x", "a/b/x"])
@pytest.mark.parametrize("what", ASSIGNED)
def test_mode_w_replaces_a_file_once_all_is_stored(
    file: hsparse.File, what: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file["a/x"], file["other"], file.attrs["note"] = [1, 2], [3], "old"
    before, sent = file.records(), Sent(file, monkeypatch, StoreFailed("The disk is full."))
    address = f"{file.connection.url}{file.filename}"
    with pytest.raises(StoreFailed), hsparse.open(address, "w") as new:
        ASSIGNED[what](new, path)
    assert file.records() == before
    assert not any(is_stored(file, id) for id in sent.ids)
    sent.error = None
    with open_file(address, "w") as new:
        ASSIGNED[what](new, path)
        new["more"] = [4]
        assert set(new) == {path.strip("/").partition("/")[0], "more"}
        assert new[path].name == f"/{path.strip('/')}"
        assert not new.attrs
    assert all(seen == sorted(before) for seen in sent.seen)
    assert not any(is_stored(file, record["id"]) for record in before.values())


@pytest.mark.parametrize("create", ["create_dataset", "create_sparse"])
def test_mode_w_leaves_a_file_as_it_was_if_its_first_dataset_is_refused(
    file: hsparse.File, create: str
) -> None:
    file["a/x"] = [1, 2]
    before, address = file.records(), f"{file.connection.url}{file.filename}"
    data = {"data": [1, 2]} if create == "create_dataset" else {"shape": (5,), "dtype": "i4"}
    with pytest.raises(BadRequest), hsparse.open(address, "w") as new:
        getattr(new, create)("x", chunks=(0,), **data)
    assert file.records() == before
    with hsparse.open(address, "w") as new:
        assert getattr(new, create)("b/x", **data).name == "/b/x"
        assert list(new) == ["b"]


# --- matrices of scipy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dia", "bsr", "lil"])
def test_stored_elements_are_defined(file: hsparse.File, kind: str) -> None:
    matrix = MATRIX.astype("f4").asformat(kind)
    dataset = hsparse.from_scipy(file, f"run/{kind}", matrix, chunks=(7, 50))
    assert (dataset.name, dataset.id) == (f"/run/{kind}", file[f"run/{kind}"].id)
    assert (dataset.chunks, dataset.dtype) == ((7, 30), np.dtype("f4"))
    coords, values = dataset.read()
    found = sp.coo_array((values, tuple(coords.T)), shape=(40, 30))
    assert (found != matrix.tocoo()).nnz == 0
    assert len(values) == matrix.tocsr().nnz


def test_zeros_stay_and_duplicates_are_added_up(file: hsparse.File) -> None:
    zeros: Any = sp.csr_array(([0, 2], [1, 0], [0, 1, 2]), shape=(2, 2))
    coords, values = hsparse.from_scipy(file, "zeros", zeros).read()
    assert dict(zip(map(tuple, coords.tolist()), values.tolist(), strict=True)) == {(0, 1): 0, (1, 0): 2}
    twice: Any = sp.csr_array(([1, 2], [1, 1], [0, 2, 2]), shape=(2, 2))
    assert hsparse.from_scipy(file, "twice", twice).read()[1].tolist() == [3]
    assert twice.nnz == 2, "the caller's matrix is as it was"


def test_what_cannot_be_stored_leaves_nothing(file: hsparse.File) -> None:
    with pytest.raises(WrongType, match="sparse array of scipy"):
        hsparse.from_scipy(file, "x", np.zeros((2, 2)))
    hsparse.from_scipy(file, "x", sp.eye_array(3, format="csr"))
    with pytest.raises(AlreadyExists):
        hsparse.from_scipy(file, "x", sp.eye_array(4, format="csr"))
    assert list(file) == ["x"]
    assert file["x"].shape == (3, 3)  # type: ignore[union-attr]
