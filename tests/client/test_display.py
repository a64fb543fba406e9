"""What a user is shown: HTML and completions in notebooks, and progress."""

from __future__ import annotations

import base64
import io
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import count
from typing import Any

import anndata
import dask.array as da
import matplotlib.image
import numpy as np
import pytest
import scipy.sparse as sp
import sparse

import hsparse
from hsparse.client import progress as progress_module
from hsparse.client.connection import Connection
from hsparse.client.integrations.dask.dask_writer import WatchedTarget
from hsparse.client.progress import ignore, show_progress
from hsparse.client.tree_text import MAX_OBJECTS
from hsparse.errors import Misconfigured, NotFound
from hsparse.optional_module import OptionalModule
from tests.client.access_ways import Access, DatasetAccess, Model, open_file

NUMBERS = count()
HOSTILE = '<img src=x onerror="alert(1)">&amp;\'"'
"""A name that must not become markup."""


@pytest.fixture
def notebook(embedded_url: str) -> Iterator[hsparse.File]:
    with open_file(f"{embedded_url}/notebook-{next(NUMBERS)}.h5", "w") as made:
        made["X"] = sp.eye_array(100, 50, format="csr", dtype="f4")
        made["runs/1/frames"] = np.zeros((2, 3), "u2")
        made["newest"] = hsparse.SoftLink("/runs/1")
        yield made


class Reader(HTMLParser):
    """Reads what a browser shows: the text, and the tags with their attributes."""

    def __init__(self, text: str | None) -> None:
        super().__init__()
        assert text is not None
        self.lines: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "div":
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        self.lines[-1] += data


def test_a_file_is_a_tree_of_two_requests(notebook: hsparse.File, requests: list[str]) -> None:
    lines = Reader(notebook._repr_html_()).lines
    assert len(requests) == 2
    assert lines == [
        f"File {notebook.filename} of {notebook.connection.url}",
        "X  (100, 50) float32, sparse",
        "newest -> /runs/1",
        "runs/",
        "1/",
        "frames  (2, 3) uint16",
    ]
    assert Reader(notebook["runs"]._repr_html_()).lines == ["Group /runs", "1/", "frames  (2, 3) uint16"]


def test_a_sparse_dataset_has_a_picture_of_its_density(notebook: hsparse.File, requests: list[str]) -> None:
    x = notebook["X"]
    requests.clear()
    shown = Reader(x._repr_html_())
    assert (len(requests), shown.lines[0]) == (1, "SparseDataset /X")
    assert shown.lines[-1] == "defined     50 of 5000, 0.01"
    (image,) = (attributes["src"] for tag, attributes in shown.tags if tag == "img")
    assert image is not None
    pixels = matplotlib.image.imread(
        io.BytesIO(base64.b64decode(image.removeprefix("data:image/png;base64,")))
    )
    assert pixels.shape == (50, 50)
    assert pixels[0, 0] < pixels[-1, 0] == 1  # the diagonal ends half way down


def test_of_a_large_dataset_chunks_are_counted_not_elements(
    notebook: hsparse.File, targets: list[str]
) -> None:
    big = notebook.create_sparse("big", (1 << 20, 1 << 10), "f4", (1 << 16, 1 << 10))
    big[3, 5] = 7
    targets.clear()
    assert Reader(big._repr_html_()).lines[-1] == f"defined     1 of {1 << 30}, 9.31e-10"
    (request,) = targets
    assert "approximate=1" in request


@pytest.mark.parametrize("shape", [(7,), (3, 200, 300), (2, 0), ()])
def test_datasets_of_any_rank_are_shown(notebook: hsparse.File, shape: tuple[int, ...]) -> None:
    if shape:
        notebook.create_sparse("s", shape, "i4", tuple(max(1, one) for one in shape))
        pictures = [tag for tag, _ in Reader(notebook["s"]._repr_html_()).tags if tag == "img"]
        assert len(pictures) == int(0 not in shape)
    notebook["d"] = np.ones(shape)
    assert f"shape       {shape}" in Reader(notebook["d"]._repr_html_()).lines


def test_a_server_without_densities_is_no_error(
    notebook: hsparse.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, send = notebook["X"], Connection.json

    def json(self: Connection, method: str, path: str, *body: object, **params: object) -> object:
        if path.endswith("/density") or method == "POST":
            raise NotFound("no such route")
        return send(self, method, path, *body, **params)

    monkeypatch.setattr(Connection, "json", json)
    assert "img" not in {tag for tag, _ in Reader(x._repr_html_()).tags}
    assert "X" in Reader(notebook._repr_html_()).lines


def test_hostile_names_are_text(embedded_url: str) -> None:
    name = HOSTILE.replace("/", "")
    with hsparse.open(f"{embedded_url}/notebook-{next(NUMBERS)}{name}.h5", "w") as notebook:
        notebook[name] = np.zeros(2, [(name, "i4")])
        notebook[f"{name}2"] = hsparse.SoftLink(name)
        notebook[f"text{name}"] = notebook.create_dataset("t", (1,), "T", fillvalue=name)
        texts = [notebook._repr_html_(), notebook[name]._repr_html_(), notebook["t"]._repr_html_()]
    for text in texts:
        shown = Reader(text)
        assert {tag for tag, _ in shown.tags} <= {"div", "b"}
        assert any(name in line for line in shown.lines)
        assert all(set(attributes) <= {"style"} for _, attributes in shown.tags)


def test_a_large_tree_is_cut(notebook: hsparse.File, requests: list[str]) -> None:
    with notebook.batch():
        for number in range(MAX_OBJECTS + 50):
            notebook.create_group(f"many/{number:04}{'x' * 300}")
    requests.clear()
    text = notebook._repr_html_()
    shown = Reader(text)
    assert (len(requests), shown.lines[-1]) == (2, f"... only {MAX_OBJECTS} are shown")
    assert len(shown.lines) == MAX_OBJECTS + 2
    assert text is not None
    assert len(text) < 100_000


def test_groups_that_contain_themselves_are_entered_once(notebook: hsparse.File) -> None:
    notebook["runs/self"] = notebook["runs"]
    lines = Reader(notebook._repr_html_()).lines
    assert [line for line in lines if re.match("self|runs", line)] == ["runs/", "self/"]


def test_keys_are_completed(embedded_url: str, notebook: hsparse.File, requests: list[str]) -> None:
    notebook.attrs.update({"title": "cells", "run": 7})
    requests.clear()
    assert notebook._ipython_key_completions_() == ["X", "newest", "runs"]
    assert sorted(notebook.attrs._ipython_key_completions_()) == ["run", "title"]
    assert len(requests) == 2
    folder: Any = hsparse.open(embedded_url)
    assert notebook.filename.strip("/") in folder._ipython_key_completions_()


def test_what_is_closed_has_its_text_alone(notebook: hsparse.File) -> None:
    x = notebook["X"]
    notebook.close()
    assert notebook._repr_html_() is None
    assert x._repr_html_() is None


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
        assert ({one for _, one in self}, self[-1][0]) == ({total}, total)
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
    with open_file(f"{connection.url}{connection.domain}") as file:
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
    with open_file(f"{connection.url}{connection.domain}") as file:
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
    with open_file(f"{connection.url}{connection.domain}") as file:
        values = np.arange(600, dtype="i4").reshape(30, 20)
        array = da.from_array(values, chunks=(10, 20))
        for path, given in (("dense", array), ("sparse", array.map_blocks(sparse.COO))):
            seen = Seen()
            written = hsparse.from_dask(file, path, given, progress=seen)
            assert np.array_equal(np.asarray(written), values)
            seen.check(values.nbytes, 3)
        again = pickle.loads(pickle.dumps(WatchedTarget(written, Seen())))
        assert again.advance is ignore
