"""Filters as flags spell them."""

from __future__ import annotations

import pytest

from hsparse.errors import HsparseError
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.exporter.refiltered_dataset import FilterChoice


@pytest.mark.parametrize(
    ("flags", "pipeline"),
    [
        (["gzip"], (Filter(1, (4,)),)),
        (["shuffle", "gzip=4"], (Filter(2, (8,)), Filter(1, (4,)))),
        (["shuffle+deflate=9+fletcher32"], (Filter(2, (8,)), Filter(1, (9,)), Filter(3))),
        (["none"], ()),
    ],
)
def test_pipelines(flags: list[str], pipeline: tuple[Filter, ...]) -> None:
    found = FilterChoice.parse(flags).pipeline(8, 800)
    assert [(one.id, one.values) for one in found] == [(one.id, one.values) for one in pipeline]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["zip"], "'zip' is unknown"),
        (["gzip=most"], "not a number"),
        (["gzip=99"], "gzip"),
        (["none", "gzip"], "cannot be combined with other filters"),
        (["szip"], "szip is not available"),
        ([""], "unknown"),
    ],
)
def test_what_is_no_filter(flags: list[str], said: str) -> None:
    with pytest.raises(HsparseError, match=said):
        FilterChoice.parse(flags)
