"""What all selections have in common: reading and writing dense arrays, and looking up sparse offsets."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points, Selection, ascending, gather, scatter
from tests.format.selection_strategies import (
    any_selections,
)


def test_scalars() -> None:
    array = np.array(5)
    for selection in (Orthogonal.all(()), Points((), np.zeros((1, 0), np.uint64), ())):
        assert gather(array, selection).shape == ()
        scatter(array, selection, np.array(6))
        assert array == 6
        assert gather(array, selection) == 6


@given(any_selections())
def test_ascending_has_the_same_elements_in_order(selection: Selection) -> None:
    expected = np.unique(selection.coords(), axis=0)
    np.testing.assert_array_equal(ascending(selection).coords(), expected.reshape(-1, len(selection.extent)))
