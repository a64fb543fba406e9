"""Reductions by the client: of dense and sparse datasets, of selections, by groups, and with asyncio."""

from __future__ import annotations

import numpy as np
import pytest

import hsparse
from hsparse import aio
from hsparse.client.connection import Connection
from hsparse.client.file import File
from hsparse.errors import BadRequest


@pytest.fixture
def file(connection: Connection) -> File:
    found = hsparse.open(f"{connection.url}{connection.domain}")
    assert isinstance(found, File)
    return found


@pytest.mark.parametrize("dtype", ["i1", ">u2", "f4", "?"])
def test_a_dense_dataset(file: File, dtype: str) -> None:
    data = np.random.default_rng(1).integers(0, 2, (4, 5, 3)).astype(dtype)
    x = file.create_dataset("x", data=data, chunks=(2, 2, 2))
    native = data.astype(np.dtype(dtype).newbyteorder("="))
    for axis in (None, 1, (-1, 0)):
        for name in ("sum", "mean", "var", "min", "max"):
            found, wanted = getattr(x, name)(axis), getattr(native, name)(axis)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
            assert found.dtype == wanted.dtype
    found = x.reduce("nnz", "count", axis=0, select="[1:4,:,1]")
    assert found["nnz"].tolist() == np.count_nonzero(native[1:4, :, 1:2], axis=0).tolist()
    assert found["count"].tolist() == [[3]] * 5
    with pytest.raises(BadRequest):
        x.reduce("sum", axis=0, select=([0, 1], [0, 1], 0))
    with pytest.raises(ValueError, match="Name an axis"):
        x.reduce("sum", axis=())


def test_one_element(file: File) -> None:
    x = file.create_dataset("x", data=np.float32(2.5))
    assert (x.sum(), x.max()) == (2.5, 2.5)
    pairs = np.array([(1, 2.0), (3, 4.0)], [("n", "i4"), ("x", "f8")])
    y = file.create_dataset("y", data=pairs)
    assert y.reduce("mean", field="x")["mean"] == 3.0


def test_groups(file: File) -> None:
    x = file.create_sparse("x", (4, 3), "i4", (2, 2))
    x.write([[0, 0], [1, 0], [3, 2]], [1, 2, 3])
    labels = ["b", "a", None, "a"]
    found = x.reduce("sum", "max", "count", axis=0, by=labels, undefined="skip")
    assert found["group"].tolist() == ["a", "b"]
    assert found["sum"].tolist() == [[2, 0, 3], [1, 0, 0]]
    assert found["count"].tolist() == [[1, 0, 1], [1, 0, 0]]
    assert found["max"].dtype == np.dtype("i4")
    file.create_dataset("obs/kind", data=np.array([5, 7, 7, 5]))
    assert x.reduce("sum", axis=(0, 1), by="/obs/kind")["sum"].tolist() == [4, 2]


async def test_with_asyncio(file: File) -> None:
    x = file.create_sparse("x", (4, 3), "i4", (2, 2))
    x.write([[0, 0], [1, 0], [3, 2]], [1, 2, 3])
    async with aio.open(f"{file.connection.url}{file.connection.domain}") as opened:
        assert isinstance(opened, aio.AsyncFile)
        y = await opened.getitem("x")
        assert isinstance(y, aio.AsyncSparse)
        assert (await y.sum(0)).tolist() == [3, 0, 3]
        assert (await y.mean(), await y.min(), await y.max()) == (0.5, 0, 3)
        assert (await y.reduce("nnz", axis=1))["nnz"].tolist() == [1, 1, 0, 1]
        assert (await y.var(1, ddof=1)).tolist() == x.var(1, ddof=1).tolist()
