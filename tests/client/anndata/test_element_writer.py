"""AnnDatas written to domains: read back, and exported for AnnData."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anndata
import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.sparse.matrix_writer import MatrixWriter
from hsparse.errors import StoreFailed
from tests.client.access_ways import is_stored, open_file
from tests.client.anndata.anndata_examples import EXAMPLES, matrix, plain
from tests.client.anndata.conftest import NUMBERS, assert_same, download


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_written_is_read_back_and_read_by_anndata(
    name: str, new_file: hsparse.File, example_file: Callable[[str], Path], tmp_path: Path
) -> None:
    data = EXAMPLES[name]()
    new_file.write_anndata(data)
    wanted = anndata.read_h5ad(example_file(name))
    for found in (new_file.to_anndata(), download(new_file, tmp_path / "domain.h5ad")):
        data.strings_to_categoricals(found.obs)  # as AnnData does when it writes a file
        found.strings_to_categoricals()
        assert_same(found, wanted)


def test_nullable_texts(new_file: hsparse.File) -> None:
    data = plain()
    data.obs["note"] = pd.array([None if n % 3 else f"ü{n}" for n in range(data.n_obs)], dtype="string")
    new_file.write_anndata(data)
    found = new_file.to_anndata().obs["note"]
    assert found.isna().tolist() == data.obs["note"].isna().tolist()
    assert found.dropna().tolist() == data.obs["note"].dropna().tolist()


def test_a_few_requests_write_it_all(new_file: hsparse.File, requests: list[str]) -> None:
    new_file.write_anndata(EXAMPLES["column_kinds"]())
    assert (requests.count("POST /datasets"), requests.count("POST /groups")) == (2, 2)
    assert len(requests) < 10


def test_dask_and_backed_matrices(new_file: hsparse.File, tmp_path: Path) -> None:
    data = plain()
    data.layers["dense"] = data.X.toarray()
    path = tmp_path / "backed.h5ad"
    data.write_h5ad(path)
    lazy = plain()
    whole = lazy.X
    lazy.X = dask.array.from_array(whole.toarray(), chunks=(17, -1)).map_blocks(
        sp.csr_matrix, meta=sp.csr_matrix((0, 0), dtype="f4")
    )
    lazy.layers["dense"] = dask.array.from_array(whole.toarray(), chunks=(20, 10))
    new_file.write_anndata(lazy, "lazy")
    backed = anndata.read_h5ad(path, backed="r")
    new_file.write_anndata(backed, "backed")
    backed.file.close()
    assert_same(new_file.to_anndata("lazy"), data)
    assert_same(new_file.to_anndata("backed"), data)


def test_bands_parts_chunks_and_filters(new_file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests: bands of dense arrays, and parts of a band that has too many elements."""
    monkeypatch.setattr("hsparse.client.sparse.matrix_writer.LARGEST_BATCH", 30)
    monkeypatch.setattr("hsparse.client.integrations.anndata.element_writer.BAND_BYTES", 1000)
    monkeypatch.setattr("hsparse.client.integrations.anndata.element_writer.MAX_INLINE_BYTES", 0)
    data = EXAMPLES["layers"]()
    data.layers["by gene"] = matrix(4, kind="csc")
    new_file.write_anndata(data, chunks=(16, 8), filters=["gzip"])
    assert_same(new_file.to_anndata(), data)
    assert new_file["X"].chunks == (16, 8)  # type: ignore[union-attr]
    assert new_file["layers/dense"].record["creationProperties"]["filters"]  # type: ignore[union-attr]


def test_nothing_is_seen_of_a_write_that_fails(
    new_file: hsparse.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its objects are deleted again, also if some of these requests fail."""
    send = Connection.json
    deleted = []

    def json(self: Connection, method: str, path: str, *args: Any, **params: Any) -> Any:
        if method == "PUT" and path.endswith("/value"):
            raise StoreFailed("The disk is full.")
        if method == "DELETE":
            deleted.append(path)
        return send(self, method, path, *args, **params)

    monkeypatch.setattr(Connection, "json", json)
    with pytest.raises(StoreFailed):
        new_file.write_anndata(plain())
    assert list(new_file) == []
    assert deleted


BAD: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "an object": (lambda data: data.uns.update(x=len), WrongType, "uns/x: .* cannot store a builtin"),
    "mixed text": (
        lambda data: data.uns.update(x=np.array(["a", None], object)),
        WrongType,
        "uns/x contains None, which is not text",
    ),
    "a slash": (lambda data: data.uns.update({"a/b": 1}), InvalidValue, "'a/b' cannot be the name"),
    "a number for a name": (
        lambda data: data.uns.update({"a": {3: 1}}),
        WrongType,
        "uns/a: the name 3 is not text",
    ),
    "a column of dates": (
        lambda data: data.obs.insert(0, "when", pd.Timestamp("2020")),
        WrongType,
        "obs/when",
    ),
    "nullable floats": (
        lambda data: data.obs.insert(0, "f", pd.array([1.5] * data.n_obs, "Float64")),
        WrongType,
        "obs/f: .* cannot store a FloatingArray: convert it",
    ),
    "an index": (lambda data: data.obs.insert(0, "_index", 1), InvalidValue, "cannot be called _index"),
    "a field of objects": (
        lambda data: data.uns.update(x=np.zeros(2, [("a", "O")])),
        WrongType,
        "0 in the field a is not text",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_has_no_form_is_named(new_file: hsparse.File, bad: str) -> None:
    data = plain()
    change, error, words = BAD[bad]
    change(data)
    with pytest.raises(error, match=words):
        new_file.write_anndata(data)
    assert list(new_file) == []


@pytest.fixture
def address(url: str) -> str:
    """The address of a domain that is not there."""
    return f"{url}/written-{next(NUMBERS)}.h5ad"


def is_there(address: str) -> bool:
    try:
        open_file(address).close()
    except KeyError:
        return False
    return True


@pytest.mark.parametrize("mode", ["w", "x", "a"])
@pytest.mark.parametrize("bad", BAD)
def test_what_is_refused_makes_no_domain(address: str, bad: str, mode: Any) -> None:
    data = plain()
    BAD[bad][0](data)
    for path in ("/", "mod/rna"):
        with pytest.raises((WrongType, InvalidValue)):
            open_file(address, mode).write_anndata(data, path)
        assert not is_there(address)
    file = open_file(address, mode)
    with pytest.raises((WrongType, InvalidValue)):
        file.write_anndata(data)
    file.write_anndata(plain())  # the same file can be used again
    assert_same(open_file(address).to_anndata(), plain())


@pytest.mark.parametrize("bad", [*BAD, "an upload"])
@pytest.mark.parametrize("path", ["/", "mod/rna"])
def test_what_fails_leaves_what_mode_w_was_to_replace(
    address: str, bad: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_file(address, "x") as old:
        old.write_anndata(plain())
        old["other"], old.attrs["note"] = [1, 2], "kept"
        objects = old.records()
    data = EXAMPLES["layers"]()
    if bad == "an upload":
        monkeypatch.setattr(MatrixWriter, "_send", lambda *args: fail())
    else:
        BAD[bad][0](data)
    with pytest.raises((WrongType, InvalidValue, StoreFailed)), open_file(address, "w") as file:
        file.write_anndata(data, path)
    monkeypatch.undo()
    with open_file(address) as left:
        assert_same(left.to_anndata(), plain())
        assert (left.records().keys(), left.attrs["note"]) == (objects.keys(), "kept")


def fail() -> None:
    raise StoreFailed("The disk is full.")


@pytest.mark.parametrize("path", ["/", "mod/rna"])
def test_mode_w_replaces_the_domain_once_all_is_stored(
    address: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_file(address, "x") as old:
        old.write_anndata(EXAMPLES["with_raw"]())
        old["other"], old.attrs["note"] = [1, 2], "old"
        old_ids = {one["id"] for one in old.records().values()}
    seen = []
    send = MatrixWriter._send

    def watched(self: MatrixWriter, *args: Any) -> None:
        with open_file(address) as meanwhile:
            seen.append("note" in meanwhile.attrs and "raw" in meanwhile)
        send(self, *args)

    monkeypatch.setattr(MatrixWriter, "_send", watched)
    with open_file(address, "w") as file:
        file.write_anndata(plain(), path)
        file["more"] = [3]
    assert seen
    assert all(seen), "the old domain is there until the new one is"
    with open_file(address) as found:
        assert_same(found.to_anndata(path), plain())
        assert ("mod" in found, "more" in found, "other" in found, "raw" in found) == (
            path != "/",
            True,
            False,
            False,
        )
        assert "note" not in found.attrs
        assert not any(map(partial(is_stored, found), old_ids))


def test_mode_w_replaces_at_the_first_use_and_at_the_end(address: str) -> None:
    for use in (
        lambda file: file.close(),
        lambda file: file.attrs,
        list,
        lambda file: file.create_group("a"),
        lambda file: file["x"],
    ):
        with open_file(address, "a") as old:
            old["other"] = [1, 2]
        file = open_file(address, "w")
        assert "other" in open_file(address), "not yet"
        with suppress(KeyError):
            use(file)
        assert "other" not in open_file(address)
    with pytest.raises(ZeroDivisionError), open_file(address, "w"):
        print(1 / 0)
    assert is_there(address)


@pytest.mark.parametrize("path", ["/", "mod/rna"])
def test_overwrite_replaces_the_anndata_alone_and_at_once(new_file: hsparse.File, path: str) -> None:
    new_file["other"] = [1, 2]
    new_file.write_anndata(EXAMPLES["with_raw"](), path)
    group = new_file if path == "/" else new_file[path]
    group["mine"] = [3]
    other = EXAMPLES["layers"]()
    with pytest.raises(FileExistsError, match=r"already has .*overwrite=True"):
        new_file.write_anndata(other, path)
    old_ids = {record["id"] for name, record in group.records().items() if name not in ("mine", "other")}
    new_file.write_anndata(other, path, overwrite=True)
    assert_same(new_file.to_anndata(path), other)
    assert "raw" not in group
    assert (group["mine"][:].tolist(), new_file["other"][:].tolist()) == ([3], [1, 2])
    assert not old_ids & {record["id"] for record in new_file.records().values()}
    assert not any(map(partial(is_stored, new_file), old_ids))


def test_what_is_there_is_noticed_before_anything_is_sent(
    new_file: hsparse.File, requests: list[str]
) -> None:
    new_file.write_anndata(plain())
    requests.clear()
    with pytest.raises(FileExistsError):
        new_file.write_anndata(plain())
    assert {request.split()[0] for request in requests} == {"GET"}
