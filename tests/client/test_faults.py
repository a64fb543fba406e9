"""Faults of a proxy, and servers that are killed: the value is right, or the error names the fault; nothing is lost."""

from __future__ import annotations

import http.client
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import anndata
import fsspec
import h5py
import numpy as np
import polars
import pytest
import scipy.sparse
import xarray
from anndata import AnnData
from scipy.sparse import csr_array

import hsparse
from hsparse.attempts import Backoff
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.client.errors import Unreachable
from hsparse.client.http import retry
from hsparse.client.sources.elements import Direct
from hsparse.errors import Conflict, HsparseError
from hsparse.storage.store_settings import StoreSettings
from tests.client.access_ways import open_file, plain_settings
from tests.support.endurance import repeats
from tests.support.faulty_proxy import BROKEN, FAULTS, PASSING, FaultyServer, proxy_with_faults
from tests.support.server_process import server_process

pytestmark = pytest.mark.endurance
NUMBERS = itertools.count()
DENSE = np.arange(2000.0).reshape(100, 20)
SPARSE = np.where(np.random.default_rng(3).random((100, 100)) < 0.2, 1.0 + np.arange(100.0), 0.0)
WORDS = ["one", "", "three"]
NAMES = ["cells", "d", "g", "s", "words"]
MOST = 3
"""The requests of an entry point that get each fault."""
Act = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", Backoff(0.001, 30.0))


@pytest.fixture(scope="module")
def proxy(embedded_url: str) -> Iterator[FaultyServer]:
    with proxy_with_faults(embedded_url) as server:
        yield server


@pytest.fixture(scope="module")
def whole(embedded_url: str) -> str:
    """A domain with data of all kinds, for reads."""
    path = f"/home/admin/faults{next(NUMBERS)}.h5"
    with hsparse.open(path, "w", endpoint=embedded_url) as file:
        fill(file)
        file["words"] = WORDS
        file.write_anndata(AnnData(csr_array(SPARSE), obs={"n": np.arange(100)}), "cells")
    return path


def fill(file: Any) -> None:
    file.create_dataset("d", data=DENSE, chunks=(10, 20), maxshape=(None, 20))
    sparse = file.create_sparse("s", (100, 100), "f8", (10, 100), maxshape=(None, 100))
    sparse.write(np.argwhere(SPARSE), SPARSE[SPARSE != 0])
    file.attrs["a"] = [1, 2, 3]
    file.create_group("g").attrs["b"] = "text"


def opened(url: str, path: str, **options: Any) -> Any:
    return hsparse.open(path, endpoint=url, timeout=1.0, **options)


READS: dict[str, tuple[Act, Any]] = {
    "dense": (lambda f: f["d"][:], DENSE),
    "points": (lambda f: f["d"][[1, 5, 9]], DENSE[[1, 5, 9]]),
    "rows": (lambda f: np.concatenate(list(f["d"].iter_rows(30))), DENSE),
    "sparse": (lambda f: f["s"][:].toarray(), SPARSE),
    "few": (lambda f: f["s"][:2].toarray(), SPARSE[:2]),
    "dense of sparse": (lambda f: f["s"].read_dense(), SPARSE),
    "sparse rows": (lambda f: np.concatenate([one.toarray() for one in f["s"].iter_rows(30)]), SPARSE),
    "count": (lambda f: f["s"].count(), np.count_nonzero(SPARSE)),
    "defined": (lambda f: len(f["s"].defined()), np.count_nonzero(SPARSE)),
    "sum": (lambda f: f["s"].sum(axis=0), SPARSE.sum(axis=0)),
    "arrow": (lambda f: f["s"].to_arrow().num_rows, np.count_nonzero(SPARSE)),
    "text": (lambda f: list(f["words"][:]), WORDS),
    "attribute": (lambda f: f.attrs["a"], [1, 2, 3]),
    "attributes": (lambda f: sorted(f["g"].attrs), ["b"]),
    "names": (lambda f: sorted(f), NAMES),
    "membership": (lambda f: ("d" in f, "none" in f), (True, False)),
    "records": (lambda f: sorted(path for path in f.records() if "/" not in path), NAMES),
    "links": (lambda f: sorted(f.links()), NAMES),
    "followed rows": (lambda f: followed(f), DENSE),
    "anndata": (lambda f: f.to_anndata("cells").X.toarray(), SPARSE),
    "xarray": (lambda f: float(xarray.open_dataset(f, engine="hsparse")["d"].sum()), DENSE.sum()),
    "dask": (lambda f: f["d"].to_dask().sum().compute(scheduler="sync"), DENSE.sum()),
    "scan": (lambda f: hsparse.scan(f, "s").collect().height, np.count_nonzero(SPARSE)),
    "folder": (lambda f: f.filename in {one["name"] for one in beside(f).records()}, True),
    "snapshots": (lambda f: f.snapshots(), []),
    "storage": (lambda f: f["d"].storage()[1] > 0, True),
    "acls": (lambda f: len(f.acls) > 0, True),
}


def followed(file: Any) -> Any:
    """Return the rows that come, with a timeout of twice the shortest poll."""
    with hsparse.open(file.filename, endpoint=file.connection.url, timeout=2.0) as same:
        return np.concatenate(list(same["d"].follow(0, count=30, timeout=0.01)))


def beside(file: Any) -> Any:
    return opened(file.connection.url, "/home/admin")


def check_named(error: BaseException, fault: str) -> None:
    """Fail unless an error is of the client, names the fault, and says nothing that is not so."""
    text = str(error)
    assert isinstance(error, HsparseError), repr(error)
    if isinstance(error, Conflict):  # of a change that was sent again: what it says is so, if it says why
        _, is_told, text = text.partition("An earlier attempt may have succeeded: ")
        assert is_told, repr(error)
    assert not any(word in text for word in ("extent", "Expecting value", "There is no")), text
    assert (fault if fault.isdigit() else "answer") in text, text


def attempt(act: Callable[[], Any], fault: str) -> tuple[Any, bool]:
    """Return what `act` does, and whether it did: else its error is one that names the fault."""
    try:
        return act(), True
    except Exception as error:  # noqa: BLE001 - judged whatever it is
        check_named(error, fault)
        return None, False


def each_request(count: int) -> range:
    """Return the requests that get a fault: the last, or some more from the first on."""
    step = -(-count // repeats(MOST, short=1))
    return range(count - 1, -1, -step)


IN_SHORT = repeats(2, short=1) == 1
SEVERAL = ["cut", "reset", "404", "200", "502"] if IN_SHORT else FAULTS


@pytest.mark.parametrize("direct", [False, "server"])
@pytest.mark.parametrize("what", list(READS)[:: 4 if IN_SHORT else 1])
def test_reads(proxy: FaultyServer, whole: str, what: str, direct: Any) -> None:
    act, expected = READS[what]
    proxy.set()
    with opened(proxy.url, whole, direct=direct) as file:
        proxy.set()
        np.testing.assert_array_equal(act(file), expected)
        count = len(proxy.requests)
    first = (list(READS).index(what) + bool(direct)) % 2
    for fault in SEVERAL if IN_SHORT else SEVERAL[first::2]:
        for at in each_request(count):
            proxy.set()
            with opened(proxy.url, whole, direct=direct) as file:
                proxy.set(fault, at)
                found, is_done = attempt(lambda: act(file), fault)
                assert proxy.met or is_done
                if is_done:
                    np.testing.assert_array_equal(found, expected)
                assert is_done or fault not in PASSING, fault
                proxy.set()
                np.testing.assert_array_equal(act(file), expected)  # nothing wrong was kept


@pytest.mark.parametrize("fault", SEVERAL)
def test_opening(proxy: FaultyServer, whole: str, fault: str) -> None:
    for mode in ("r", "r+", "a"):
        proxy.set(fault)
        found, is_done = attempt(lambda mode=mode: opened(proxy.url, whole, mode=mode), fault)
        assert is_done or fault not in PASSING or mode == "a"
        if is_done:
            assert sorted(found) == NAMES


@pytest.mark.parametrize("fault", SEVERAL)
def test_replacing(proxy: FaultyServer, embedded_url: str, fault: str) -> None:
    def replace() -> None:
        with opened(proxy.url, path, mode="w") as file:
            file.create_dataset("n", data=[1.0, 2.0])

    count = None
    for kind in ["", fault]:
        for at in [0] if count is None else each_request(count):
            path = f"/home/admin/faults{next(NUMBERS)}.h5"
            with opened(embedded_url, path, mode="w") as file:
                fill(file)
            proxy.set(kind, at)
            _, is_done = attempt(replace, fault)
            count = len(proxy.requests) if count is None else count
            proxy.set()
            with opened(embedded_url, path, mode="r") as file:
                names = sorted(file)
                assert names in ([["n"]] if is_done else [["n"], ["d", "g", "s"]]), at
                if names == ["n"]:
                    assert file["n"][:].tolist() == [1, 2], at
                else:
                    np.testing.assert_array_equal(file["d"][:], DENSE)
            remove(embedded_url, path)


def append_later(file: Any) -> None:
    with file["d"].appender() as appender:
        appender.append(DENSE[:3])


def in_batch(file: Any) -> None:
    with file.batch():
        for number in range(3):
            file.create_group(f"n{number}").attrs["number"] = number


def clone_of(path: str) -> str:
    return path.replace(".h5", "_clone.h5")


def has_clone(file: Any) -> bool:
    return clone_of(file.filename) in {one["name"] for one in beside(file).records()}


def remove(url: str, path: str) -> None:
    """Delete a domain, and before it its clone if it has one."""
    folder = hsparse.open("/home/admin", endpoint=url)
    names = {one["name"] for one in folder.records()}
    for name in (clone_of(path), path):
        if name in names:
            folder.connection.json("DELETE", "/", domain=name, wait=10)


WRITES: dict[str, tuple[Act, Act, Any, Any]] = {
    "create": (
        lambda f: f.create_dataset("n", data=[1.0, 2.0]),
        lambda f: "n" in f and f["n"][:].tolist(),
        False,
        [1, 2],
    ),
    "group": (lambda f: f.create_group("n"), lambda f: "n" in f, False, True),
    "values": (lambda f: f["d"].__setitem__(slice(0, 2), -1.0), lambda f: f["d"][0, 0], 0.0, -1.0),
    "elements": (
        lambda f: f["s"].__setitem__((0, [3, 5]), [-7.0, -9.0]),
        lambda f: f["s"][0, 3],
        SPARSE[0, 3],
        -7.0,
    ),
    "attribute": (lambda f: f.attrs.__setitem__("a", 5), lambda f: np.ravel(f.attrs["a"])[0], 1, 5),
    "remove attribute": (lambda f: f.attrs.__delitem__("a"), lambda f: "a" in f.attrs, True, False),
    "append": (lambda f: f["d"].append(DENSE[:3]), lambda f: f["d"].refresh()[0], 100, 103),
    "append elements": (lambda f: f["s"].append(SPARSE[:3]), lambda f: f["s"].refresh()[0], 100, 103),
    "extend": (lambda f: f["d"].extend(2), lambda f: f["d"].refresh()[0], 100, 102),
    "appender": (append_later, lambda f: f["d"].refresh()[0], 100, 103),
    "batch": (in_batch, lambda f: "n2" in f and f["n2"].attrs["number"], False, 2),
    "remove": (lambda f: f.__delitem__("g"), lambda f: "g" in f, True, False),
    "move": (lambda f: f.move("g", "h"), lambda f: "h" in f, False, True),
    "resize": (lambda f: f["d"].resize((120, 20)), lambda f: f["d"].refresh()[0], 100, 120),
    "erase": (lambda f: f["s"].erase(), lambda f: f["s"].count(), np.count_nonzero(SPARSE), 0),
    "clone": (lambda f: f.clone(clone_of(f.filename)), has_clone, False, True),
    "snapshot": (lambda f: f.snapshot(), lambda f: len(f.snapshots()) > 0, False, True),
    "rights": (lambda f: f.acls.__setitem__("ann", ["read"]), lambda f: "ann" in f.acls, False, True),
}
PARTLY = {"batch", "append", "append elements", "appender", "create", "remove", "move"}
"""What takes several changes, so that a failure may leave some of them."""


@pytest.mark.parametrize("what", list(WRITES)[:: 4 if IN_SHORT else 1])
def test_writes(proxy: FaultyServer, embedded_url: str, what: str) -> None:
    act, look, before, after = WRITES[what]
    count = None
    for fault in ["", *SEVERAL]:
        for at in [0] if count is None else each_request(count):
            for passed_on in {fault != "429", fault in BROKEN}:
                path = f"/home/admin/faults{next(NUMBERS)}.h5"
                with opened(embedded_url, path, mode="w") as file:
                    fill(file)
                proxy.set()
                with opened(proxy.url, path) as file:
                    proxy.set(fault, at, passed_on=passed_on)
                    _, is_done = attempt(lambda: act(file), fault)
                    count = len(proxy.requests) if count is None else count
                    proxy.set()
                    assert is_done or fault, what
                    through = look(file)
                with opened(embedded_url, path, mode="r") as file:
                    found = look(file)
                if is_done:
                    assert found == after, (fault, at, passed_on)
                elif what not in PARTLY:
                    assert found in (before, after), (fault, at, passed_on)
                assert through == found
                remove(embedded_url, path)


def test_files_of_fsspec(proxy: FaultyServer, whole: str) -> None:
    def read() -> Any:
        system = fsspec.filesystem("hsparse", endpoint=proxy.url, timeout=1.0, skip_instance_cache=True)
        with system.open(whole) as raw, h5py.File(raw) as file:
            return file["d"][:]

    proxy.set()
    np.testing.assert_array_equal(read(), DENSE)
    count = len(proxy.requests)
    for fault in SEVERAL:
        for at in each_request(count):
            proxy.set(fault, at)
            found, is_done = attempt(read, fault)
            assert is_done or fault not in PASSING, (fault, at)
            if is_done:
                np.testing.assert_array_equal(found, DENSE)


COMMANDS: dict[str, list[str]] = {
    "ls": ["ls", "-l", "PATH"],
    "info": ["info", "PATH"],
    "du": ["du", "PATH"],
    "acl": ["acl", "PATH", "ann", "read"],
    "export": ["export", "PATH", "FILE"],
    "map": ["map", "PATH", "FILE"],
    "cp": ["cp", "PATH", "NEW"],
    "mv": ["mv", "PATH", "NEW"],
    "rm": ["rm", "PATH"],
    "mkdir": ["mkdir", "NEW"],
    "import": ["import", "SOURCE", "NEW", "--quiet"],
}


@pytest.mark.parametrize("what", list(COMMANDS)[:: 4 if IN_SHORT else 1])
def test_commands(
    proxy: FaultyServer, embedded_url: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file.create_dataset("d", data=DENSE, chunks=(10, 20))
    count = None
    for fault in ["", *(one for one in SEVERAL if one != "stall")]:
        for at in [0] if count is None else each_request(count):
            number = next(NUMBERS)
            path, new = f"/home/admin/faults{number}.h5", f"/home/admin/new{number}.h5"
            target = tmp_path / f"{number}.out"
            with opened(embedded_url, path, mode="w") as made:
                fill(made)
            given = {"PATH": path, "NEW": new, "FILE": str(target), "SOURCE": str(tmp_path / "source.h5")}
            words = [*(given.get(word, word) for word in COMMANDS[what]), "--endpoint", proxy.url]
            proxy.set(fault, at)
            capsys.readouterr()
            status = main(words)
            shown = capsys.readouterr()
            count = len(proxy.requests) if count is None else count
            came = [*proxy.requests]
            proxy.set()
            case = (fault, at, shown.err)
            if status == 0:
                check_command(what, embedded_url, path, new, target)
            else:
                assert fault, shown.err
                assert (fault if fault.isdigit() else "answer") in shown.err, case
                assert "There is no" not in shown.err, case
            if what == "import" and status != 0:
                assert status == 2
                if any(line.startswith("PUT /?") for line in came[:at]):  # then the domain is there
                    assert "The imported part is kept" in shown.err, case
                assert main([*words[:-1], embedded_url, "--resume"]) == 0
                check_command(what, embedded_url, path, new, target)
            assert (
                status == 0
                or fault not in ("cut", "reset", "slow", "429", "500", "502", "503", "504", "520")
                or (what in ("mv", "mkdir", "cp", "acl", "map"))
            ), case


def check_command(what: str, url: str, path: str, new: str, target: Path) -> None:
    """Fail unless a command has done what it said."""
    names = {one["name"] for one in hsparse.open("/home/admin", endpoint=url).records()}
    if what in ("export",):
        with h5py.File(target) as file:
            np.testing.assert_array_equal(file["d"][:], DENSE)
    elif what in ("cp", "mv", "import"):
        np.testing.assert_array_equal(opened(url, new)["d"][:], DENSE)
    elif what == "mkdir":
        assert new in names
    elif what == "acl":
        assert set(opened(url, path).acls["ann"]) == {"read"}
    elif what == "map":
        assert set(json.loads(target.read_text())["datasets"]) == {"/d", "/s"}
    assert (path in names) == (what not in ("rm", "mv"))


ROWS, WIDTH = 2000, 50
LAYER_WIDTH = 8000
"""A layer of 16 MB: an answer that no socket's buffer has room for."""
KILLED = "/killed.h5ad"
ANSWERS = re.compile(r"/(values?|defined|map)\b")
"""Paths of what gives values, or says where they are."""


class Fate:
    """Calls `kill` when the answer with this number begins, of those that give values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kill: Callable[[], None], answers: int) -> None:
        self.seen = 0
        counted: WeakSet[http.client.HTTPConnection] = WeakSet()
        request, getresponse = http.client.HTTPConnection.request, http.client.HTTPConnection.getresponse

        def watched_request(connection: Any, method: str, target: str, *args: Any, **options: Any) -> None:
            (counted.add if ANSWERS.search(target) else counted.discard)(connection)
            request(connection, method, target, *args, **options)

        def watched_answer(connection: Any) -> Any:
            answer = getresponse(connection)
            self.seen += connection in counted
            if self.seen == answers:
                kill()
            return answer

        monkeypatch.setattr(http.client.HTTPConnection, "request", watched_request)
        monkeypatch.setattr(http.client.HTTPConnection, "getresponse", watched_answer)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an AnnData whose X has 20 rows of chunks."""
    root = tmp_path_factory.mktemp("killed")
    rng = np.random.default_rng(1)
    matrix = scipy.sparse.random_array((ROWS, WIDTH), density=0.2, rng=rng, dtype="f4", format="csr")
    data = anndata.AnnData(matrix)
    data.obsm["large"] = rng.integers(0, 255, (ROWS, LAYER_WIDTH), np.uint8)
    with (
        embedded_server(plain_settings(StoreSettings(root=root, fsync=False))) as url,
        open_file(f"{url}{KILLED}", "w") as file,
    ):
        file.write_anndata(data, chunks=(100, WIDTH))
    return root


def read_rows(file: Any, taken: list[int]) -> None:
    for block in file["X"].iter_rows(100):
        taken.append(block.shape[0])


def read_scan(file: Any, taken: list[int]) -> None:
    taken.append(hsparse.scan(file, "X").collect().height)


def read_batches(file: Any, taken: list[int]) -> None:
    for batch in hsparse.Batches(file["X"], size=100, memory=100_000):
        taken.append(len(batch.rows))


def read_anndata(file: Any, taken: list[int]) -> None:
    taken.append(file.to_anndata().n_obs)


@pytest.mark.parametrize(
    ("read", "direct", "answers"),
    [
        (read_rows, False, 3),
        (read_rows, None, 3),
        (read_scan, False, 3),
        (read_scan, True, 3),
        (read_batches, False, 4),
        (read_batches, True, 4),
        (read_anndata, False, 1),
    ],
)
def test_it_is_an_error_and_no_short_result(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Any, list[int]], None],
    direct: Direct,
    answers: int,
) -> None:
    taken: list[int] = []
    with server_process("--root", str(root), "--no-fsync") as server:
        fate = Fate(monkeypatch, server.kill, answers)
        with (
            hsparse.open(f"{server.url}{KILLED}", direct=direct, retries=0, patience=0) as file,
            pytest.raises((Unreachable, polars.exceptions.ComputeError), match="not answer"),
        ):
            read(file, taken)
    assert fate.seen == answers
    assert sum(taken) < ROWS
    assert bool(taken) == (read in (read_rows, read_batches))
