"""Mappings that are put together mean the same as before."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from hsparse.format.plan.virtual_plan import ordered
from hsparse.hdf5.format.parse.mapping_json import mapping_json, mapping_of
from hsparse.hdf5.format.parse.virtual_mapping import VirtualMapping
from hsparse.hdf5.virtual_dataset.merging import merged_mappings

EXTENT, SOURCE = (24, 6, 5), (30, 10, 5)


def slab(*spans: tuple[int, int]) -> dict[str, Any]:
    """Return the hyperslab of a start and a length in each dimension."""
    return {"class": "H5S_SEL_HYPERSLABS", "start": [a for a, _ in spans], "block": [n for _, n in spans],
            "count": [1] * len(spans)}  # fmt: skip


def mapping(file: str, virtual: dict[str, Any], source: dict[str, Any]) -> VirtualMapping:
    return mapping_of({"file": file, "dataset": "x", "virtual": virtual, "source": source})


def meaning(mappings: list[VirtualMapping]) -> dict[tuple[int, ...], tuple[Any, ...]]:
    """Return which element of which source each element is."""
    found: dict[tuple[int, ...], tuple[Any, ...]] = {}
    for one in mappings:
        virtual, source = ordered(one.virtual, EXTENT), ordered(one.source, SOURCE)
        assert virtual.size == source.size
        numbers = np.arange(virtual.size)
        to, of = (np.stack(some.coords(numbers), 1).tolist() for some in (virtual, source))
        found |= {tuple(a): (one.file, *b) for a, b in zip(to, of, strict=True)}
    return found


def frames(order: list[tuple[int, int]]) -> list[VirtualMapping]:
    return [mapping(f"m{m}", slab((k, 1), (m, 1), (0, 5)), slab((k, 1), (2, 1), (0, 5))) for k, m in order]


CASES = {
    "module by module": (frames([(k, m) for m, k in product(range(6), range(20))]), 6),
    "frame by frame": (frames(list(product(range(20), range(6)))), 6),
    "every third frame": (frames([(k, m) for m, k in product(range(2), range(0, 24, 3))]), 2),
    "some frames are missing": (frames([(k, 1) for k in (*range(9), *range(12, 22))]), 2),
    "blocks of frames": (
        [mapping("a", slab((2 * k, 2), (0, 6), (0, 5)), slab((3 * k, 2), (1, 6), (0, 5))) for k in range(9)],
        1,
    ),
    "along other dimensions": (
        [mapping("a", slab((k, 1), (0, 1), (0, 5)), slab((0, 1), (k, 1), (0, 5))) for k in range(10)],
        1,
    ),
    "turned": (
        [mapping("a", slab((k, 1), (0, 5), (0, 1)), slab((0, 5), (0, 1), (k % 5, 1))) for k in range(15)],
        15,
    ),
    "what overlaps": (frames([(k, 0) for k in range(10)] + [(k, 0) for k in range(5, 15)]), 20),
    "backwards": (frames([(k, 0) for k in range(12, 0, -1)]), 12),
}


@pytest.mark.parametrize("case", CASES)
def test_it_means_the_same(case: str) -> None:
    mappings, count = CASES[case]
    found = merged_mappings(mappings)
    assert meaning(found) == meaning(mappings)
    assert len(found) == count
    assert [mapping_of(mapping_json(one)) for one in found] == found
