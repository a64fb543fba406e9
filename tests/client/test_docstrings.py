"""The docstrings of the client: each public name has an example that prints what it says.

Those of `hsparse.torch` are in `tests/test_torch.py`, with the tests that import torch.
"""

from __future__ import annotations

import inspect

import pytest

import hsparse
from hsparse import aio
from hsparse.client.anndata.query import Query
from hsparse.client.attributes import Attributes
from hsparse.client.batches.batches import Batch
from hsparse.client.files.fsspec_filesystem import HsparseFileSystem, VirtualFile
from hsparse.client.group import NamedType
from hsparse.client.indexing.labels import AxisLabels
from hsparse.client.sparse_dataset import OrthogonalIndex
from hsparse.client.xarray.xarray_backend import HsparseBackendEntrypoint
from tests.support.docstring_examples import Documented, Sample, documented, run_example, sample

__all__ = ["sample"]

NAMED = [getattr(hsparse, name) for name in hsparse.__all__ if name != "__version__"]
ASYNC = [
    one
    for name, one in vars(aio).items()
    if not name.startswith("_") and getattr(one, "__module__", "").startswith(aio.__name__) and callable(one)
]
"""Their methods are those of the client's objects with `await`, and need no examples of their own."""
RETURNED = [
    Attributes,
    AxisLabels,
    Batch,
    HsparseBackendEntrypoint,
    HsparseFileSystem,
    NamedType,
    OrthogonalIndex,
    Query,
    VirtualFile,
]
"""What the objects of `hsparse` return, and what xarray and fsspec know by entry points."""
WITHOUT = {
    one.__name__ for one in NAMED if inspect.isclass(one) and issubclass(one, hsparse.HsparseError)
} - {"HsparseError"}
"""Errors are caught, not called; `HsparseError` shows how."""
PUBLIC = {one.name: one for owner in [*NAMED, *RETURNED] for one in documented(owner)}
PUBLIC |= {f"aio.{one.name}": one for one in (next(documented(owner)) for owner in ASYNC)}


def test_each_public_name_has_an_example() -> None:
    missing = {name for name, one in PUBLIC.items() if not one.has_example} - WITHOUT
    assert not missing, f"These docstrings have no example: {sorted(missing)}"


@pytest.mark.parametrize(
    "one", [pytest.param(one, id=name) for name, one in PUBLIC.items() if one.has_example]
)
def test_examples_print_what_they_say(
    one: Documented, sample: Sample, request: pytest.FixtureRequest
) -> None:
    run_example(one, sample, request.getfixturevalue("url") if "server" in one.docstring else "")
