"""Numbers put together from shuffled bytes against the bytes as they were."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.byte_planes import BytePlanes
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters


@given(st.data())
def test_any_column_of_any_shuffled_bytes(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from((1, 2, 4, 8)))
    narrow = data.draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= width]))
    columns, count = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 40))
    before, behind = data.draw(st.binary(max_size=20)), data.draw(st.binary(max_size=5))
    most = data.draw(st.sampled_from((1 << 8 * narrow, 1 << 8 * width))) - 1
    numbers = data.draw(st.lists(st.integers(0, most), min_size=count * columns, max_size=count * columns))
    table = np.array(numbers, f"<u{width}").reshape(count, columns)
    content = before + table.tobytes() + behind
    step = width * columns
    parts = [part for part in (2, 3, 4, 8) if step % part == 0 and step > part]
    element = data.draw(
        st.sampled_from((step, 2 * step, 4 * step, step + 1, *(step // one for one in parts)))
    )
    shuffled, _ = apply_filters((Filter(2, (element,)),), content)
    planes = BytePlanes(bytes(shuffled), element, len(content))
    assert planes.joined() == content
    for size in (0, 3, len(content), 99):
        assert planes.head(size) == content[:size]
    for column in range(columns):
        expected = table[:, column]
        found = planes.column(len(before) + column * width, step, count, width, narrow)
        if (element % step and step % element) or (
            expected >> np.array(8 * narrow - 1, expected.dtype) >> np.array(1, expected.dtype)
        ).any():
            assert found is None
        else:
            assert found is not None
            assert found.dtype.itemsize == narrow
            assert found.tolist() == expected.tolist()
