"""Columns of elements."""

import numpy as np

from hsparse.client.sources.elements import Elements


def test_coords_are_rows_of_the_columns() -> None:
    elements = Elements((np.array([1, 2], np.uint16), np.array([30, 40], np.uint8)), np.array([0.5, 7.0]))
    assert len(elements) == 2
    assert elements.coords().tolist() == [[1, 30], [2, 40]]
    assert elements.coords().dtype == np.uint64


def test_parts_are_joined_in_their_order() -> None:
    parts = [
        Elements((np.array([1], np.uint16),), np.array([3])),
        Elements((np.array([70_000], np.uint32),), np.array([4])),
        Elements((np.array([], np.uint8),), np.array([], np.int64)),
    ]
    joined = Elements.concatenate(parts)
    assert joined.columns[0].tolist() == [1, 70_000]
    assert joined.values.tolist() == [3, 4]
    assert Elements.concatenate(parts[:1]) is parts[0]


def test_joined_values_keep_their_byte_order() -> None:
    part = Elements((np.array([1], np.uint16),), np.array([3], ">f8"))
    assert Elements.concatenate([part, part]).values.dtype == np.dtype(">f8")
