"""The base install, and the core without its extensions: what is left works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest

import hsparse
from hsparse.cli.main import COMMANDS
from hsparse.extension import BUILT_IN
from tests.support.endurance import ENDURANCE
from tests.support.server_process import server_process

PROJECT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
EXTRAS = SETTINGS["optional-dependencies"]
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED:
            raise ModuleNotFoundError(f"No module named {top!r}", name=name)
        return None

ALLOWED = {*sys.stdlib_module_names, *sys.argv.pop(1).split(",")}
for name in [name for name in sys.modules if name.partition(".")[0] not in {*ALLOWED, "__main__"}]:
    del sys.modules[name]  # what the environment loads by itself
sys.meta_path.insert(0, Blocked())
"""
ARRAYS = """
import hsparse

with hsparse.Connection(sys.argv[1], "/arrays.h5") as connection:
    connection.json("PUT", "/", {})
    data = hsparse.SparseDataset.create(connection, "/x", (100, 100), "f4", (10, 10))
    data.write([[1, 2], [30, 40]], [0.5, 7])
    coords, values = data.read()
    assert coords.tolist() == [[1, 2], [30, 40]] and values.tolist() == [0.5, 7]
    data.erase_points([[1, 2]])
    assert data.count() == 1
    try:
        hsparse.SparseDataset.open(connection, "/none")
    except hsparse.NotFound:
        print("done")
"""
NEEDING = """
import hsparse

with hsparse.open(sys.argv[1] + "/needing.h5", "w") as file:
    data = file.create_sparse("x", (100, 100), "f4", (10, 10))
    try:
        CODE
    except hsparse.HsparseError as error:
        print(error)
"""
FIRST = """
from hsparse import open

before = set(sys.modules)
with open(sys.argv[1] + "/first.h5") as file:
    assert file["x"][3, 4] == 5
print(*before, "|", *set(sys.modules) - before)
"""
MAIN = "from hsparse.cli.main import main; sys.exit(main(sys.argv[1:]))"
EACH = """
import contextlib, io, json
from hsparse.cli.main import main

for arguments in json.loads(sys.argv[1]):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    print(json.dumps([status, out.getvalue(), errors.getvalue()]))
"""


@cache  # to look through all that is installed takes a third of a second
def base() -> list[str]:
    """Return the top-level packages of the base install."""
    wanted = {re.split(r"[^\w-]", one)[0].lower() for one in SETTINGS["dependencies"]}
    tops = [
        top
        for top, names in packages_distributions().items()
        if {name.lower() for name in names} & wanted and top.isidentifier()
    ]
    return ["hsparse", *tops]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK + code, ",".join(base()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def command(*arguments: str) -> str:
    """Run a command, which is to succeed; return what it prints."""
    done = run(MAIN, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_each(commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Run commands in one process, which is mostly imports; return the status of each and what it prints."""
    done = run(EACH, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process("--root", str(tmp_path_factory.mktemp("store"))) as server:
        yield server.url


@pytest.fixture(scope="module")
def cells(url: str) -> None:
    """An AnnData at /cells.h5ad."""
    found = hsparse.open(f"{url}/cells.h5ad", "w")
    assert isinstance(found, hsparse.File)
    with found:
        found.write_anndata(anndata.AnnData(np.eye(3, dtype=np.float32), obs={"n": [1, 2, 3]}))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "some.h5"
    with h5py.File(path, "w") as made:
        made.attrs["title"] = "some thing"
        kinds = {"gzip": {"compression": "gzip", "shuffle": True}, "sums": {"fletcher32": True}}
        for name, filters in kinds.items():
            made.create_dataset(name, data=np.arange(100_000).reshape(1000, 100), chunks=(64, 64), **filters)
        made["text"] = ["one", "two"]
        matrix = made.create_group("matrix")
        matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [2, 2]})
        matrix.update({"data": [5.0, 7.0], "indices": [1, 0], "indptr": [0, 1, 2]})
    return path


def test_the_base_install_is_numpy() -> None:
    assert base() == ["hsparse", "numpy"]


def test_the_client_works(url: str) -> None:
    done = run(ARRAYS, url)
    assert done.stdout == "done\n", done.stderr


def test_names_of_the_package() -> None:
    done = run("import hsparse; print(*(getattr(hsparse, n) for n in hsparse.__all__))")
    assert done.returncode == 0, done.stderr
    stub = (PROJECT / "hsparse" / "__init__.pyi").read_text()
    submodules = {"torch"}
    assert {*re.findall(r"import (\w+) as \1", stub), "__version__"} == {*hsparse.__all__, *submodules}
    for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE):
        assert name in submodules or getattr(import_module(module), name) is getattr(hsparse, name)
    assert all(getattr(hsparse, name) is not None for name in hsparse.__all__)
    assert "SparseDataset" in dir(hsparse)
    with pytest.raises(AttributeError, match="no attribute 'open_sesame'"):
        _ = hsparse.open_sesame  # type: ignore[attr-defined]


def test_a_first_value_needs_few_modules_and_the_package_imports_them(url: str) -> None:
    with hsparse.open(f"{url}/first.h5", "w") as file:
        file.create_sparse("x", (10, 10), "f4", (5, 5)).write([[3, 4]], [5])
    done = run(FIRST, url)
    assert done.returncode == 0, done.stderr
    imported, later = (part.split() for part in done.stdout.split("|"))
    assert set(later) <= {"encodings.idna", "stringprep", "unicodedata"}
    assert len([one for one in imported if one.startswith("hsparse")]) <= 93
    slow = {"asyncio", "concurrent.futures", "email.mime", "logging", "sqlite3", "unittest"}
    assert not slow & set(imported)


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("hsparse.torch", "torch"),
        ("hsparse.scan(data)", "polars"),
        ("data.to_dask()", "dask"),
        ("data.to_scipy()", "scipy"),
        ("list(hsparse.Batches(data))", "scipy"),
        ("hsparse.open(sys.argv[1] + '/cells.h5ad').to_anndata()", "anndata"),
        ("hsparse.open(sys.argv[1] + '/cells.h5ad').query(obs='n > 1').n_obs", "anndata"),
        ("hsparse.open(sys.argv[1] + '/cells.h5ad').to_anndata(lazy=True)", "dask"),
        ("import hsparse.client.integrations.xarray.xarray_backend", "xarray"),
        ("import hsparse.client.integrations.fsspec_filesystem", "fsspec"),
        ("hsparse.open(sys.argv[1] + '/needing.h5', direct='s3://bucket')['x'][0, 0]", "direct"),
    ],
)
def test_arrays_of_others_name_their_extra(url: str, cells: None, code: str, extra: str) -> None:
    done = run(NEEDING.replace("CODE", code), url)
    assert done.returncode == 0, done.stderr
    assert re.search(
        rf'This needs the package \w+, which is not installed: run pip install "hsparse\[{extra}\]"',
        done.stdout,
    )
    assert extra in EXTRAS


def test_import_export_map_and_jobs(url: str, file: Path, tmp_path: Path) -> None:
    command("import", str(file), "/some.h5", "--endpoint", url)
    out, again = tmp_path / "out.h5", tmp_path / "again.h5"
    command("export", "/some.h5", str(out), "--endpoint", url)
    command("export", "/some.h5", str(again), "--endpoint", url, "--filter", "gzip=1")
    with h5py.File(file) as wanted:
        for path in (out, again):
            with h5py.File(path) as found:
                for name in ("gzip", "sums", "text"):
                    assert np.array_equal(found[name][()], wanted[name][()])
                matrix = {part: found["matrix"][part][()].tolist() for part in ("data", "indices", "indptr")}
                assert matrix == {"data": [5, 7], "indices": [1, 0], "indptr": [0, 1, 2]}
    command("map", "/some.h5", str(tmp_path / "map.json"), "--endpoint", url)
    assert command("job", "list", "--endpoint", url) == ""


def test_the_tree_of_a_server(url: str, file: Path) -> None:
    command("mkdir", "-p", "/tree/a", "--endpoint", url)
    command("import", str(file), "/tree/a/some.h5", "--endpoint", url)
    command("cp", "-r", "/tree/a", "/tree/b", "--endpoint", url)
    command("mv", "/tree/b/some.h5", "/tree/b/x.h5", "--endpoint", url)
    listed = command("ls", "-r", "/tree", "--endpoint", url).split()
    assert listed == ["/tree/a/", "/tree/a/some.h5", "/tree/b/", "/tree/b/x.h5"]
    assert "gzip" in command("info", "/tree/b/x.h5/gzip", "--endpoint", url)
    command("rm", "-r", "/tree", "--endpoint", url)


def test_help() -> None:
    names = [name for name, one in COMMANDS.items() if one.extra is None]
    done = run_each([["--help"], *([name, "--help"] for name in names)])
    assert [status for status, _, _ in done] == [0] * len(done)
    for name, (_, out, _) in zip(["[--help]", *names], done, strict=True):
        assert out.startswith(f"usage: hsparse {name}")


NEED_EXTRAS = [
    *(([name, "--help"], one.extra) for name, one in COMMANDS.items() if one.extra is not None),
    (["user", "list", "--password-file", "passwords"], "server"),
    (["key", "list", "--key-file", "keys"], "server"),
    (["import", "s3://bucket/key", "/a.h5"], "s3"),
    (["import", "a.zarr.zip", "/a.h5"], "zarr"),
    (["import", "a.soma", "/a.h5"], "soma"),
    (["export", "/a.h5", "s3://bucket/key"], "s3"),
    (["map", "/a.h5", "no-such-directory", "--format", "kerchunk-parquet"], "parquet"),
    (["completion", "bash"], "completion"),
]


def test_what_needs_an_extra_names_it() -> None:
    done = run_each([arguments for arguments, _ in NEED_EXTRAS])
    for (arguments, extra), (status, _, errors) in zip(NEED_EXTRAS, done, strict=True):
        assert status == 2, arguments
        assert re.fullmatch(
            rf'hsparse: This needs the package \w+, which is not installed: run pip install "hsparse\[{extra}\]"\n',
            errors,
        ), arguments
        assert extra in EXTRAS


def test_a_codec_that_is_missing_names_the_extra(url: str, file: Path, tmp_path: Path) -> None:
    command("import", str(file), "/other.h5", "--endpoint", url)
    done = run(MAIN, "export", "/other.h5", str(tmp_path / "x.h5"), "--endpoint", url, "--filter", "lzf")
    assert done.returncode == 2
    assert 'The codec lzf is not installed here: pip install "hsparse[files]"' in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_region_references_name_the_extra(url: str, tmp_path: Path) -> None:
    path = tmp_path / "regions.h5"
    with h5py.File(path, "w") as made:
        data = made.create_dataset("data", (10,), "f4")
        made.create_dataset("regions", (1,), h5py.regionref_dtype)[0] = data.regionref[2:5]
    done = run(MAIN, "import", str(path), "/regions.h5", "--endpoint", url)
    assert done.returncode == 2
    assert 'pip install "hsparse[files]"' in done.stderr


def test_extras_add_up() -> None:
    assert "hsparse[files,s3]" in EXTRAS["server"]
    assert {one.extra for one in COMMANDS.values()} | {
        part.extra for one in COMMANDS.values() for part in one.parts.values()
    } <= {None, *EXTRAS}


SHORT = ("objects/test_link_handlers.py", "domains/test_folders.py", "values/test_sparse.py")
WHOLE = ("objects", "domains", "values")
MAPS = (
    "tests/sn/values/test_selected.py::test_paired_lists_with_slices_are_refused_by_their_bytes",
    "tests/sn/values/test_signed.py::test_chunks_have_signed_coordinates",
    "tests/sn/values/test_signed.py::test_what_counts_from_zero_refuses_it",
)
"""They ask for a map among others, which is an extension's."""
ABSENT = """
import sys

import pytest

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = {"hsparse.client.integrations", *(f"hsparse.{name}" for name in sys.argv.pop(1).split(","))}
sys.meta_path.insert(0, Absent())
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.endurance
@pytest.mark.timeout(600)
def test_the_rest_suite_of_the_core_passes_without_extensions() -> None:
    paths = [f"tests/sn/{path}" for path in (WHOLE if ENDURANCE.full else SHORT)]
    words = [sys.executable, "-c", ABSENT, ",".join(BUILT_IN), "-x", *(f"--deselect={test}" for test in MAPS)]
    done = subprocess.run([*words, *paths], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
