"""The public names of the client: each has an example that prints what it says, and annotations that say enough.

Those of `hsparse.torch` are in `tests/test_torch.py`, with the tests that import torch.
"""

from __future__ import annotations

import inspect

import pytest

import hsparse
from hsparse.client.attributes import Attributes
from hsparse.client.group import NamedType
from hsparse.client.indexing.labels import AxisLabels
from hsparse.client.integrations.anndata.anndata_part import AnnDataPart
from hsparse.client.integrations.anndata.query import AnnDataQuery
from hsparse.client.integrations.batches.batches import Batch
from hsparse.client.integrations.fsspec_filesystem import HsparseFileSystem, VirtualFile
from hsparse.client.integrations.xarray.xarray_backend import HsparseBackendEntrypoint
from hsparse.client.sparse_dataset import OrthogonalIndex
from hsparse.client.versions import Change, Difference, Snapshot
from tests.support.docstring_examples import Documented, Sample, documented, run_example, sample

__all__ = ["sample"]

NAMED = [getattr(hsparse, name) for name in hsparse.__all__ if name != "__version__"]
RETURNED = [
    AnnDataPart, Attributes, AxisLabels, Batch, Change, Difference, HsparseBackendEntrypoint,
    HsparseFileSystem, NamedType, OrthogonalIndex, AnnDataQuery, Snapshot, VirtualFile,
]  # fmt: skip
"""What the objects of `hsparse` return, and what xarray and fsspec know by entry points."""
WITHOUT = {
    one.__name__ for one in NAMED if inspect.isclass(one) and issubclass(one, hsparse.HsparseError)
} - {"HsparseError"}
"""Errors are caught, not called; `HsparseError` shows how."""
PUBLIC = {one.name: one for owner in [*NAMED, *RETURNED] for one in documented(owner)}
WITH_ANY = {
    # An array, or a number for all axes: numpy returns Any, too.
    *(f"ReducedDataset.{name}" for name in ("sum", "mean", "var", "min", "max")),
    "SparseDataset.count",
    # The class follows from the key, the format, or the type of the elements.
    "DenseDataset.__getitem__",
    "SparseDataset.__getitem__",
    "SparseDataset.take",
    "OrthogonalIndex.__getitem__",
    "SparseReads.to_scipy",
    "AnnDataQuery.to_scipy",
    "Dataset.fillvalue",
    "Dataset.compression_opts",
    "Group.get",
    "Attributes.__getitem__",
    "Attributes.update",
    "AnnDataPart.__getitem__",
    "AnnDataPart.__setitem__",
    # Options of `hsparse.open`.
    "concat",
    "scan",
    # What fsspec and xarray declare.
    *(f"HsparseBackendEntrypoint.{name}" for name in ("guess_can_open", "open_dataset")),
    *(f"HsparseBackendEntrypoint.{name}" for name in ("open_groups_as_dict", "open_datatree")),
    *("HsparseFileSystem", "HsparseFileSystem.ls", "HsparseFileSystem.info", "VirtualFile"),
}
"""Names that take or return Any, because no type is known."""


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


def test_annotations_say_any_only_where_no_type_is_known() -> None:
    assert {name for name, one in PUBLIC.items() if "Any" in one.annotations.values()} == WITH_ANY
