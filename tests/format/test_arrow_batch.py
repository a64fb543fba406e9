"""Record batches against the readers of Arrow itself, of nanoarrow and of polars."""

from __future__ import annotations

import io
from typing import Any

import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.values.media.arrow import PART, ArrowWriter, batch_parts, read_arrow

NUMBERS = ("i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")


def stream(writer: ArrowWriter, *batches: tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> bytes:
    return (
        b"".join(part for columns, values in batches for part in writer.parts(columns, values)) + writer.end()
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(1, 4), st.sampled_from(NUMBERS))
def test_arrow_reads_what_is_written(lengths: list[int], rank: int, dtype: str) -> None:
    extent = (2**32, 2**40, 7, 2**63 - 1)[:rank]
    batches = []
    for number, length in enumerate(lengths):
        columns = [np.arange(length, dtype="u8") * dim % extent[dim] for dim in range(rank)]
        batches.append((columns, (np.arange(length) + number).astype(dtype)))
    data = stream(ArrowWriter(extent, np.dtype(dtype)), *batches)
    wanted = {f"dim_{dim}": np.concatenate([columns[dim] for columns, _ in batches]) for dim in range(rank)}
    wanted["value"] = np.concatenate([values for _, values in batches])
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    for found in (table.to_pydict(), na.Array(na.ArrayStream.from_readable(io.BytesIO(data)))):
        columns = (
            found if isinstance(found, dict) else {k: [row[k] for row in found.to_pylist()] for k in wanted}
        )
        assert columns == {name: column.tolist() for name, column in wanted.items()}
    if dtype != "<f2":
        frame = pl.read_ipc_stream(io.BytesIO(data))
        assert frame.to_dict(as_series=False) == {name: column.tolist() for name, column in wanted.items()}
    coords, values = read_arrow(data, rank, np.dtype(dtype))
    assert coords.T.tolist() == [wanted[f"dim_{dim}"].tolist() for dim in range(rank)]
    assert values.tolist() == wanted["value"].tolist()


@pytest.mark.parametrize("dtype", [">f4", "S3", "?", [("a", "<i2"), ("b", ">f8")]])
def test_other_elements_of_a_fixed_size(dtype: Any) -> None:
    values = np.zeros(5, dtype)
    values[1] = (2, 0.5) if isinstance(dtype, list) else 1
    data = stream(ArrowWriter((100,), values.dtype), ([np.arange(5)], values))
    pa.ipc.open_stream(data).read_all().validate(full=True)
    coords, found = read_arrow(data, 1, values.dtype)
    assert coords.ravel().tolist() == [0, 1, 2, 3, 4]
    assert found.tobytes() == values.tobytes()


def test_long_columns_are_not_copied() -> None:
    columns = [np.arange(PART, dtype="u4"), np.arange(PART, dtype="u1")]
    head, *parts = batch_parts(columns)
    assert len(head) % 8 == 0
    assert all(
        np.shares_memory(np.frombuffer(part, "u1"), column)
        for part, column in zip(parts, columns, strict=True)
    )


def test_a_short_batch_is_one_part() -> None:
    assert len(batch_parts([np.arange(3, dtype="u4"), np.arange(3, dtype="u1")])) == 1
