"""Domains that have AnnDatas, and what they are compared with."""

from __future__ import annotations

import http.client
import itertools
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
from anndata.tests.helpers import assert_equal

import hsparse
from hsparse.cli.main import parse_arguments
from tests.client.access_ways import open_file
from tests.client.anndata.anndata_examples import EXAMPLES

NUMBERS = itertools.count()
PBMC = Path(__file__).parents[3] / "demo" / "data" / "pbmc68k_reduced.h5ad"
"""A file that AnnData wrote before version 0.7."""


@pytest.fixture(scope="session")
def example_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the h5ad file of an example."""
    directory = tmp_path_factory.mktemp("h5ad")

    @cache
    def write(name: str) -> Path:
        path = directory / f"{name}.h5ad"
        EXAMPLES[name]().write_h5ad(path)
        return path

    return write


@pytest.fixture(scope="session")
def imported(url: str, example_file: Callable[[str], Path]) -> Callable[[str], hsparse.File]:
    """A function that opens the domain into which an example's file was imported."""

    @cache
    def domain(name: str) -> str:
        return import_file(url, example_file(name))

    return lambda name: open_file(f"{url}{domain(name)}")


@pytest.fixture(scope="session")
def imported_pbmc(url: str) -> str:
    """The address of the domain into which `PBMC` was imported."""
    return url + import_file(url, PBMC)


def import_file(url: str, file: Path) -> str:
    """Import a file as the command does, and return the path of its domain."""
    domain = f"/anndata-{next(NUMBERS)}.h5ad"
    args = parse_arguments(["import", str(file), domain, "--endpoint", url, "--progress", "none", "--quiet"])
    assert args.run(args) == 0
    return domain


@pytest.fixture
def new_file(url: str) -> Iterator[hsparse.File]:
    with open_file(f"{url}/anndata-{next(NUMBERS)}.h5ad", "x") as file:
        yield file


def download(file: hsparse.File, target: Path) -> anndata.AnnData:
    urllib.request.urlretrieve(f"{file.connection.url}/files{file.filename}", target)
    return anndata.read_h5ad(target)


@contextmanager
def before_each(action: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do something before each request of the connections of this process."""
    request = http.client.HTTPConnection.request

    def watched(self: Any, method: str, target: str, *args: Any, **options: Any) -> None:
        action(method, target)
        request(self, method, target, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "request", watched)
        yield


def assert_same(found: Any, wanted: anndata.AnnData) -> None:
    """Compare two AnnDatas: values, types of elements, classes of matrices."""
    assert_equal(found, wanted)
    assert_same_types(found.uns, wanted.uns, "uns")
    for part in ("X", "layers", "obsm", "varm", "obsp", "varp"):
        assert_same_types(getattr(found, part), getattr(wanted, part), part)
    if wanted.raw is not None:
        assert_same_types(found.raw.X, wanted.raw.X, "raw.X")


def assert_same_types(found: Any, wanted: Any, name: str) -> None:
    if hasattr(wanted, "items") and not hasattr(wanted, "iloc"):
        for key, value in wanted.items():
            assert_same_types(found[key], value, f"{name}/{key}")
        return
    assert type(found) is type(wanted), name
    if isinstance(wanted, np.ndarray | sp.spmatrix):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    if isinstance(wanted, np.ndarray):
        assert found.flags.writeable, name
