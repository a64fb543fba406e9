"""The examples in docstrings of the client: which names need one, and how one runs over a small store.

`hsparse/__init__.py` says what an example finds.
"""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hsparse
from hsparse.client.http.sign_in import NAMES
from hsparse.errors import Misconfigured

OPERATORS = {"__getitem__", "__setitem__", "__delitem__"}
"""Methods that an operator calls, and that need an example as those do that a user calls by name."""
DESCRIPTORS = (property, cached_property, classmethod, staticmethod)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MATRIX = np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0], [4, 0, 0]], "f4")
SIGNED = np.array([[1, 0, 0], [0, 0, 0], [0, 2, 0], [0, 0, 3], [0, 0, 0]], "f4")


@dataclass(frozen=True, slots=True)
class Documented:
    """A public class, function, method or property, with its annotations, and the module in which it stands."""

    name: str
    docstring: str
    annotations: dict[str, Any]
    module: str

    @property
    def has_example(self) -> bool:
        return ">>>" in self.docstring


def documented(owner: Any) -> Iterator[Documented]:
    """Yield a function; or a class and what a user calls of it, by the names of the classes that define it.

    What a class inherits from one of another package is not its own.
    """
    first = owner.__init__ if inspect.isclass(owner) else owner
    yield Documented(owner.__name__, owner.__doc__ or "", annotations(first), owner.__module__)
    if not inspect.isclass(owner):
        return
    own = [one for one in reversed(owner.__mro__) if one.__module__.startswith("hsparse.")]
    members = {name: (one, member) for one in own for name, member in vars(one).items()}
    for name, (one, member) in members.items():
        is_public = name in OPERATORS or not name.startswith("_")
        if is_public and (inspect.isfunction(member) or isinstance(member, DESCRIPTORS)):
            full = f"{one.__name__}.{name}"
            yield Documented(full, member.__doc__ or "", annotations(member), one.__module__)


def annotations(member: Any) -> dict[str, Any]:
    """Return the annotations of a function, a method or a property; none of what another package has defined."""
    for inner in ("fget", "func", "__func__"):
        member = getattr(member, inner, None) or member
    return getattr(member, "__annotations__", {})


class Sample:
    """A store in `data`, a directory of `place`, where examples run, and what they find there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._root = place / "data"
        self._root.mkdir()
        self._store = hsparse.open("/", root=self._root)
        len(hsparse.open("/home/admin", root=self._root))  # makes the home, which examples list
        len(self._store)  # opens the store, which stays open for all examples
        self._run: tuple[hsparse.File, hsparse.SparseDataset, Any] | None = None

    def close(self) -> None:
        self._store.close()

    def names(self, docstring: str, server: str = "") -> dict[str, Any]:
        """Return the names that an example uses; `server` is the URL of one. What it can change is fresh."""
        found: dict[str, Any] = {"np": np, "hsparse": hsparse, "server": server}
        used = set(re.findall(r"\w+", docstring))
        if used & {"f", "X", "D", "S", "run"}:
            found["f"], found["X"] = self._fresh_run()
        if "D" in used:
            found["D"] = found["f"].create_dataset("D", data=np.arange(12).reshape(4, 3))
        if "S" in used:
            found["S"] = s = found["f"].create_sparse(
                "S", SIGNED.shape, "f4", (2, 3), maxshape=(None, 3), lower=(-2, 0), minlower=(None, 0)
            )
            s.write_region(None, SIGNED, drop_fill=True)
        if "adata" in used:
            found["adata"] = self._adata.copy()
        if "cells" in used:
            found["cells"] = hsparse.open(self._cells, root=self._root)
        return found

    def _fresh_run(self) -> tuple[hsparse.File, hsparse.SparseDataset]:
        """Return the file `run.h5` and its `X`: those of the example before, if it has changed nothing."""
        if self._run is None or state(*self._run[:2]) != self._run[2]:
            f = self._created("run.h5")
            assert not len(f)  # made anew, without snapshots
            x = f.create_sparse("X", MATRIX.shape, "f4", (2, 3), maxshape=(None, 3))
            x.write(np.argwhere(MATRIX), MATRIX[MATRIX != 0])
            self._run = f, x, state(f, x)
        return self._run[:2]

    @cached_property
    def _adata(self) -> Any:
        anndata = pytest.importorskip(
            "anndata", reason='anndata is not installed: pip install "hsparse[anndata]"'
        )
        pandas = pytest.importorskip("pandas")
        columns = {"cell_type": pandas.Categorical(["T", "B", "NK", "T"]), "n_genes": [2, 0, 1, 1]}
        return anndata.AnnData(
            pytest.importorskip("scipy.sparse").csr_matrix(MATRIX),
            obs=pandas.DataFrame(columns, index=["c0", "c1", "c2", "c3"]),
            var=pandas.DataFrame(index=["CD3E", "NKG7", "MS4A1"]),
        )

    @cached_property
    def _cells(self) -> str:
        with self._created("cells.h5ad") as file:
            file.write_anndata(self._adata, progress=False)
            return file.filename

    def _created(self, name: str) -> hsparse.File:
        found = hsparse.open(f"/home/admin/{name}", "w", root=self._root)
        assert isinstance(found, hsparse.File)
        return found


def state(f: hsparse.File, x: hsparse.SparseDataset) -> Any:
    """Return all that an example may change in `f`; None if even that fails."""
    try:
        objects = f.connection.json("GET", "/", getobjs=1, include_attrs=1, include_links=1)["domain_objs"]
        return objects, f.snapshots(), *(column.tolist() for column in x.read())
    except hsparse.HsparseError:
        return None


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    found = Sample(tmp_path_factory.mktemp("examples"))
    with ExitStack() as changed:
        variables = changed.enter_context(pytest.MonkeyPatch.context())
        for prefix, names in NAMES.items():
            for name in names:
                variables.delenv(f"{prefix}_{name}", raising=False)
        changed.enter_context(chdir(found.place))
        yield found
    found.close()


def run_example(one: Documented, sample: Sample, server: str = "") -> None:
    """Run the example of a docstring; fail if it prints something else, skip if it needs what is not installed."""
    names = {**vars(sys.modules[one.module]), **sample.names(one.docstring, server)}
    test = doctest.DocTestParser().get_doctest(one.docstring, names, one.name, None, 0)
    try:
        doctest.DebugRunner(optionflags=FLAGS, verbose=False).run(test, clear_globs=False)
    except doctest.DocTestFailure as failure:
        message = f"{one.name}\n{failure.example.source}prints\n{failure.got}not\n{failure.example.want}"
        pytest.fail(message, pytrace=False)
    except doctest.UnexpectedException as failure:
        error = failure.exc_info[1]
        assert error is not None
        if is_missing_extra(error):
            pytest.skip(f"{one.name}: {error}")
        raise error from None
    finally:
        for value in test.globs.values():
            if isinstance(value, hsparse.File | hsparse.Folder):
                value.close()


def is_missing_extra(error: BaseException) -> bool:
    """Say whether an error is that of a package that is not installed."""
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").partition(".")[0] != "hsparse"
    return isinstance(error, Misconfigured) and "is not installed" in str(error)
