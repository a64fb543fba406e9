"""Sets of offsets as hyperslabs: the same set, regular when it is, and as few boxes as merging gives."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.selection_encoding import find_regular, merge, row_runs
from tests.format.selection_strategies import extents, spans


@given(st.data())
def test_regular_hyperslabs_are_found(data: st.DataObject) -> None:
    extent = data.draw(extents(1, 4))
    slab = Orthogonal(extent, tuple(data.draw(spans(length)) for length in extent))
    if slab.size:
        found = find_regular(row_runs(slab.offsets().astype(np.uint32), extent[-1]), extent)
        assert found is not None
        assert Orthogonal(extent, found) == slab
        starts, _ = merge(row_runs(slab.offsets().astype(np.uint32), extent[-1]), extent)
        assert len(starts) == math.prod(1 if span.contiguous else span.count for span in found)
