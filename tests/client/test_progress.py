"""Progress: a function, a bar on a terminal, or nothing."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import anndata
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import sparse

import hsparse
from hsparse.client import progress as progress_module
from hsparse.client.connection import Connection
from hsparse.client.integrations.dask.dask_writer import WatchedTarget
from hsparse.client.progress import ignore, show_progress
from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule
from tests.client.access_ways import Access
from tests.client.dataset_access import DatasetAccess, Model


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeTqdm:
    """What tqdm is asked for here."""

    bars: list[FakeTqdm] = []  # noqa: RUF012

    def __init__(self, total: int, desc: str, **options: Any) -> None:
        self.total, self.desc, self.n = total, desc, 0
        self.bars.append(self)

    def __enter__(self) -> FakeTqdm:
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""

    def update(self, count: int) -> None:
        self.n += count

    tqdm: Any = None


FakeTqdm.tqdm = FakeTqdm


def install(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    """Make these the only optional modules."""

    def load(self: OptionalModule) -> Any:
        if modules.get(self.module.partition(".")[0]) is None:
            raise Misconfigured(f"{self.module} is not installed")
        return modules[self.module.partition(".")[0]]

    monkeypatch.setattr(OptionalModule, "load", load)


def test_a_function_is_called_with_what_is_done() -> None:
    seen: list[tuple[int, int]] = []
    with show_progress(lambda done, total: seen.append((done, total)), "x", 5) as advance:
        advance(2)
        advance(3)
    assert seen == [(2, 5), (5, 5)]


@pytest.mark.parametrize(
    ("progress", "terminal", "bars"), [(None, True, 1), (None, False, 0), (True, False, 1), (False, True, 0)]
)
def test_a_bar_of_tqdm(
    monkeypatch: pytest.MonkeyPatch, progress: bool | None, terminal: bool, bars: int
) -> None:
    install(monkeypatch, tqdm=FakeTqdm)
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    FakeTqdm.bars.clear()
    with show_progress(progress, "cells.h5ad", 10) as advance:
        advance(4)
        advance(6)
    assert [(bar.n, bar.total, bar.desc) for bar in FakeTqdm.bars] == [(10, 10, "cells.h5ad")] * bars


def test_a_bar_of_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    rich = OptionalModule("rich.progress").load()
    install(monkeypatch, rich=rich)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_progress(None, "cells.h5ad", 10) as advance:
        advance(10)


def test_no_bar_without_either(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_progress(None, "x", 1) as advance:
        advance(1)
    with pytest.raises(Misconfigured, match="rich"), show_progress(True, "x", 1):
        raise AssertionError


# --- long work ---------------------------------------------------------------------------------------


class Seen(list[tuple[int, int]]):
    """What a function is called with; nothing goes back, and the end is the total."""

    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))

    def check(self, total: int, least_calls: int = 1) -> None:
        assert [done for done, _ in self] == sorted(done for done, _ in self)
        assert {one for _, one in self} == {total}
        assert self[-1][0] == total
        assert len(self) >= least_calls


@pytest.fixture(params=["http", "directory", "server"])
def matrix(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    """A sparse dataset of 35 chunks, over HTTP and past the server, and its values."""
    if request.param == "http":
        opened = DatasetAccess("http", request.getfixturevalue("connection"))
    else:
        access: Access = request.getfixturevalue("directory_access")
        direct: Any = access.direct if request.param == "directory" else "server"
        opened = DatasetAccess(request.param, access.connection, direct)
    model = Model.random((100, 150), np.int32, 3)
    return opened.filled(model, (20, 25)), model.values


@pytest.mark.parametrize("key", [..., (slice(3, 90), slice(None)), ([5, 3, 70], slice(0, 140))])
def test_reads_of_a_sparse_dataset(matrix: tuple[Any, np.ndarray], key: Any) -> None:
    dataset, values = matrix
    forms: list[Callable[[Any], Any]] = [
        lambda seen: dataset.to_numpy(key, progress=seen),
        lambda seen: dataset.to_scipy("csc", key, progress=seen).toarray(),
        lambda seen: dataset.to_coo(key, progress=seen).todense(),
        lambda seen: of_table(dataset.to_arrow(key, progress=seen), values[key].shape),
    ]
    for read in forms:
        seen = Seen()
        assert np.array_equal(read(seen), values[key])
        seen.check(dataset.count(key) * 4)


def of_table(table: Any, shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape, np.int32)
    found[tuple(table[f"dim_{dim}"].to_numpy() for dim in range(len(shape)))] = table["value"].to_numpy()
    return found


def test_reads_are_shown_while_they_are_read(matrix: tuple[Any, np.ndarray]) -> None:
    dataset, _ = matrix
    seen = Seen()
    dataset.to_scipy(progress=seen)
    seen.check(dataset.nnz * 4, 2)
    assert 0 < seen[0][0] <= seen[-1][1]


def test_what_is_not_shown_costs_nothing(http_access: DatasetAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, or for a small read, nothing is counted."""
    dataset = http_access.filled(Model.random((20, 15), np.int32), (20, 15))
    monkeypatch.setattr("hsparse.client.sparse.sparse_reads.count_defined", None)
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        for progress in (None, False):
            dataset.to_numpy(progress=progress)
    monkeypatch.setattr(progress_module, "MIN_BAR_BYTES", 100)
    with pytest.raises(TypeError, match="not callable"):
        dataset.to_numpy()


def test_dense_datasets_and_rows(connection: Connection) -> None:
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert isinstance(file, hsparse.File)
        values = np.random.default_rng(1).random((3000, 100))
        dataset = file.create_dataset("x", data=values, chunks=(100, 100))
        seen = Seen()
        assert np.array_equal(dataset.to_numpy(progress=seen), values)
        seen.check(values.nbytes, 2)
        seen = Seen()
        assert np.array_equal(dataset.to_numpy((slice(5), 0), progress=seen), values[:5, 0])
        seen.check(40)
        seen = Seen()
        blocks = list(dataset.iter_rows(1000, 100, progress=seen))
        assert np.array_equal(np.concatenate(blocks), values[100:])
        assert seen == [(1000, 2900), (2000, 2900), (2900, 2900)]


def test_anndata_in_both_directions(connection: Connection) -> None:
    counts = sp.random_array((400, 50), density=0.3, dtype=np.float32, format="csr", rng=1)
    data = anndata.AnnData(counts, obsm={"pca": np.ones((400, 5))})
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert isinstance(file, hsparse.File)
        seen = Seen()
        file.write_anndata(data, progress=seen)
        seen.check(seen[0][1])
        calls: list[tuple[Callable[..., Any], Callable[[Any], Any]]] = [
            (file.to_anndata, lambda found: found.X),
            (file.query().to_anndata, lambda found: found.X),
            (file.query().to_scipy, lambda found: found),
        ]
        for read, matrix in calls:
            seen = Seen()
            assert (matrix(read(progress=seen)) != counts).nnz == 0
            seen.check(seen[0][1])
        seen = Seen()
        parts = [part.X for part in file.query(obs=slice(0, 350)).iter(150, progress=seen)]
        assert (sp.vstack(parts) != counts[:350]).nnz == 0
        assert seen == [(150, 350), (300, 350), (350, 350)]


def test_arrays_of_dask(connection: Connection) -> None:
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert isinstance(file, hsparse.File)
        values = np.arange(600, dtype="i4").reshape(30, 20)
        array = da.from_array(values, chunks=(10, 20))
        for path, given in (("dense", array), ("sparse", array.map_blocks(sparse.COO))):
            seen = Seen()
            written = hsparse.from_dask(file, path, given, progress=seen)
            assert np.array_equal(np.asarray(written), values)
            seen.check(values.nbytes, 3)
        again = pickle.loads(pickle.dumps(WatchedTarget(written, Seen())))
        assert again.advance is ignore
