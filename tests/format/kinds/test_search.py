from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.kinds.chunk_kind import Search
from hsparse.format.query import bind_query

ROWS = np.array([(1, 5.0), (2, 6.0), (3, 7.0), (4, 8.0)], [("n", "<i4"), ("x", "<f8")])


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_answers_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    found = Search(bind_query("n > 1", ROWS.dtype), 0, (), False).among(ROWS.reshape(shape))
    assert found.positions.tolist() == [1, 2, 3]
    assert found.values.tolist() == ROWS[1:].tolist()


def test_a_limit_fields_and_places_alone() -> None:
    found = Search(bind_query("n > 1", ROWS.dtype), 2, ("x",), False).among(ROWS)
    assert found.values.tolist() == [(6.0,), (7.0,)]
    found = Search(bind_query("n > 1", ROWS.dtype), 2, (), True).among(ROWS)
    assert found.positions.tolist() == [1, 2]
    assert len(found.values) == 0


def test_a_query_of_another_type_is_refused() -> None:
    with pytest.raises(BadRequest):
        Search(bind_query("y > 1", ROWS.dtype), 0, (), False)
