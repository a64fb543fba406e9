"""The bodies that create datasets."""

import pytest

from benchmarks.trials import layout
from benchmarks.workloads.lcls_points import lcls_points
from benchmarks.workloads.rfc_table import rfc_table
from benchmarks.workloads.uniform import uniform


def test_a_sparse_dataset_filters_each_section_and_can_grow() -> None:
    body = layout.sparse(lcls_points(4), rows=0)
    properties = body["creationProperties"]
    assert properties["layout"] == {
        "class": "H5D_STRUCT_CHUNK",
        "dims": [16, 512, 512],
        "flags": ["H5D_SPARSE_DATA"],
    }
    sections = [(each["section"], each["class"]) for each in properties["filters"]]
    assert sections == [
        ("H5_SECTION_SELECTION", "H5Z_FILTER_SHUFFLE"),
        ("H5_SECTION_SELECTION", "H5Z_FILTER_USER"),
        ("H5_SECTION_FIXED", "H5Z_FILTER_SHUFFLE"),
        ("H5_SECTION_FIXED", "H5Z_FILTER_USER"),
    ]
    assert body["shape"] == [0, 1024, 1024]
    assert body["maxdims"] == ["H5S_UNLIMITED", 1024, 1024]


def test_bytes_are_not_shuffled() -> None:
    filters = layout.sparse(rfc_table("one rectangle", 1), codec=layout.GZIP)["creationProperties"]["filters"]
    assert [(each["section"], each["id"]) for each in filters] == [
        ("H5_SECTION_SELECTION", 2),
        ("H5_SECTION_SELECTION", 1),
        ("H5_SECTION_FIXED", 1),
    ]


def test_a_dense_dataset_has_shuffle_and_gzip() -> None:
    body = layout.dense(lcls_points(4))
    assert body["shape"] == [4, 1024, 1024]
    assert [each["id"] for each in body["creationProperties"]["filters"]] == [2, 1]
    with pytest.raises(ValueError, match="too large"):
        layout.dense(uniform(10, 100))
