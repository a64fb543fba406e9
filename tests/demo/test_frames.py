from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.frames import SIDE, frame

indices = st.integers(0, 2000)


@settings(max_examples=15, deadline=None)
@given(indices)
def test_a_region_is_a_tenth_of_the_frame(index: int) -> None:
    one = frame(2 * index)
    places, values = one.elements()
    assert one.region is not None
    assert 0.09 < len(values) / SIDE**2 < 0.11
    rows, columns = (slice(int(a.min()), int(a.max()) + 1) for a in places.T[1:])
    assert one.region == f"[{2 * index},{rows.start}:{rows.stop},{columns.start}:{columns.stop}]"
    assert np.array_equal(one.image[rows, columns].ravel(), values)


@settings(max_examples=15, deadline=None)
@given(indices)
def test_a_point_list_is_some_hundred_pixels(index: int) -> None:
    one = frame(2 * index + 1)
    places, values = one.elements()
    assert one.region is None
    assert 200 < len(values) <= 1000
    assert (values > 100).all()
    assert (places[:, 0] == 2 * index + 1).all()
    assert np.array_equal(one.image[places[:, 1], places[:, 2]], values)
    assert (np.diff(places[:, 1] * SIDE + places[:, 2]) > 0).all()


def test_frames_are_the_same_each_time_and_differ() -> None:
    first = frame(3).image.copy()
    frame.cache_clear()
    assert np.array_equal(frame(3).image, first)
    assert not np.array_equal(frame(5).image, first)
