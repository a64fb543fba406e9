"""The single chunk's record in the layout message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.chunk_index import index_info, index_info_size
from hsparse.format.hdf5.index_kind import IndexKind
from hsparse.format.hdf5.single_chunk import single_records
from tests.format.hdf5.host_file import assert_same
from tests.format.hdf5.record_cases import make_layout, make_records


@pytest.mark.parametrize(
    ("sections", "filtered", "size"),
    [(0, False, 0), (0, True, 12), (2, False, 10), (2, True, 34), (3, False, 24), (3, True, 60)],
)
def test_the_record_comes_back(sections: int, filtered: bool, size: int) -> None:
    layout = make_layout(IndexKind.SINGLE, (1, 1), sections, filtered)
    records = make_records(layout, np.zeros((1, 2), np.uint64))
    info = index_info(layout, records)
    assert len(info) == index_info_size(layout) == size
    found = single_records(replace(layout, info=info), int(records.address[0]))
    assert_same(found, records)
    assert index_info(layout) == bytes(size)
    with pytest.raises(Corrupt, match="index information"):
        single_records(replace(layout, info=info + b"\0"), 0)


def test_an_address_that_the_prototype_leaves_means_no_chunk() -> None:
    layout = make_layout(IndexKind.SINGLE, (1,), 2, False)
    layout = replace(layout, info=index_info(layout))
    assert len(single_records(layout, 2**64 - 2)) == 0
    assert len(single_records(layout, 2**64 - 1)) == 0
    assert len(single_records(layout, 2**40)) == 1
