from __future__ import annotations

from typing import Any

import numpy as np
import polars
import pytest
from polars import col

from hsparse.client.integrations.polars.row_filter import allowed_places

NAMES, EXTENT = ["dim_0", "dim_1"], (10, 6)
DTYPES = [np.dtype("u4")] * 2


def places(predicate: Any) -> list[list[int] | None]:
    masks = allowed_places(predicate, NAMES, EXTENT, DTYPES)
    return [None if mask is None else np.flatnonzero(mask).tolist() for mask in masks]


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        (col("dim_0") > 6, [[7, 8, 9], None]),
        ((col("dim_0") > 6) & (col("dim_1") == 2), [[7, 8, 9], [2]]),
        ((col("dim_0") > 6) & (col("dim_0") % 2 == 0) & (col("value") > 3), [[8], None]),
        (col("dim_0").is_in([3, 99]) & col("dim_1").is_between(2, 3), [[3], [2, 3]]),
        (~(col("dim_1") < 4), [None, [4, 5]]),
        ((col("dim_0") > 6) | (col("dim_0") < 2), [[0, 1, 7, 8, 9], None]),
        ((col("dim_0") > 6) | (col("dim_1") < 2), [None, None]),
        (col("dim_0") > col("dim_1"), [None, None]),
        (col("value") > 1, [None, None]),
        (polars.lit(True), [None, None]),
        (col("dim_0") > 99, [[], None]),
        (col("dim_0").replace(3, None) < 5, [[0, 1, 2, 4], None]),
        (col("dim_0").cast(polars.String).str.contains("[1-3]"), [[1, 2, 3], None]),
    ],
)
def test_a_predicate_restricts_the_coordinates_that_it_names_alone(
    predicate: Any, wanted: list[list[int] | None]
) -> None:
    assert places(predicate) == wanted


def test_what_cannot_be_tried_restricts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(col("dim_0").str.contains("x")) == [None, None]  # fails, at any value
    monkeypatch.setattr("hsparse.client.integrations.polars.row_filter.MAX_FILTERED_ROWS", 9)
    assert places((col("dim_0") > 6) & (col("dim_1") == 2)) == [None, [2]]


def test_long_dimensions_are_tried_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.client.integrations.polars.row_filter.ROWS_AT_ONCE", 3)
    assert places((col("dim_0") % 4) == 1) == [[1, 5, 9], None]
