"""What a request of dense values has: whole chunks, side by side."""

from itertools import product
from math import prod

import pytest

from hsparse.cli.importer.dense_upload import BAND, LARGEST, bands

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("counts", "nbytes", "boxes"),
    [
        ((100,), MIB, 7),
        ((100, 8), MIB, 50),
        ((100, 20), MIB, 100),
        ((3, 40, 2), 2 * MIB, 3 * 10),
        ((4, 3, 2), 7, 1),
        ((2, 2), 2 * LARGEST, 4),
    ],
)
def test_bands_cover_the_grid_once(counts: tuple[int, ...], nbytes: int, boxes: int) -> None:
    found = list(bands(counts, nbytes))
    chunks = [scaled for first, last in found for scaled in product(*map(range, first, last))]
    assert sorted(chunks) == list(product(*map(range, counts)))
    assert len(found) == boxes


@pytest.mark.parametrize("counts", [(1000,), (50, 12), (7, 9, 11)])
@pytest.mark.parametrize("nbytes", [1000, 3 * MIB, BAND])
def test_a_band_is_no_larger_than_a_request_may_be(counts: tuple[int, ...], nbytes: int) -> None:
    for first, last in bands(counts, nbytes):
        assert prod(map(int.__sub__, last, first)) * nbytes <= LARGEST
