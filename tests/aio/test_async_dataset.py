"""Datasets of `hsparse.aio`: results are those of the client."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from hsparse import aio


async def test_a_domain_is_written_and_read(address: str) -> None:
    async with aio.open(address, "x") as file:
        assert isinstance(file, aio.AsyncFile)
        group = await file.create_group("run")
        x = await group.create_sparse("x", (10, 10), "f4", (5, 5), maxshape=(None, 10))
        await x.write([[1, 2], [9, 9]], [3, 4])
        await x.write_region((2, slice(0, 2)), 5)
        assert await x.append([[0, 0]], [6], count=2) == slice(10, 12)
        assert await x.extend(1) == slice(12, 13)
        assert (x.shape, x.dtype, x.chunks) == ((13, 10), np.dtype("f4"), (5, 5))
        assert (x.ndim, x.size, x.maxshape, x.is_null, len(x)) == (2, 130, (None, 10), False, 13)
        y = await file.create_dataset("y", data=[1, 2, 3])
        await y.setitem(slice(1, 3), 7)
        assert await file.attrs() == {}
    async with aio.open(address) as file:
        assert isinstance(file, aio.AsyncFile)
        assert await file.keys() == ["run", "y"]
        x = await sparse(file, "run/x")
        assert "async" in repr(x)
        coords, values = await x.read()
        assert len(coords) == len(values) == await x.count() == await x.nnz() == 5
        assert len(await x.defined((2, slice(None)))) == 2
        assert (await x.read_points([[9, 9], [0, 0]])).tolist() == [4, 0]
        await x.erase((slice(0, 5), slice(None)))
        assert (await x.read_dense())[9, 9] == (await x.getitem((9, 9))) == 4
        await x.setitem((8, slice(None)), (await x.getitem(slice(9, 10))))
        assert (await x.to_scipy("csc")).nnz == (await x.to_coo(slice(8, 10))).nnz + 1 == 3
        assert (await x.to_numpy(8)).tolist() == [0] * 9 + [4]
        await x.resize((8, 10), erase=True)
        assert await x.refresh() == (8, 10)
        assert await x.count() == 0
        assert (await x.storage())[0] == await x.run(lambda: x.sync.storage()[0])
        dense = await file.getitem("y")
        assert isinstance(dense, aio.AsyncDense)
        assert (await dense.getitem(...)).tolist() == (await dense.to_numpy()).tolist() == [1, 7, 7]
        with pytest.raises(KeyError):
            await file.getitem("none")


async def test_keys_of_both_kinds_rows_and_reductions(address: str) -> None:
    matrix = sp.random_array((20, 6), density=0.4, format="csr", rng=np.random.default_rng(3))
    async with aio.open(address, "x") as file:
        assert isinstance(file, aio.AsyncFile)
        x = await file.create_sparse("x", (0, 6), "f8", (4, 6), maxshape=(None, 6))
        assert await x.append(matrix) == slice(0, 20)
        assert await x.append_region(np.ones((1, 6))) == slice(20, 21)
        wanted = np.vstack([matrix.toarray(), np.ones((1, 6))])
        rows, columns = [3, 1, 20], [0, 5]
        assert (await x.oindex.getitem((rows, columns))).toarray().tolist() == wanted[
            np.ix_(rows, columns)
        ].tolist()
        await x.oindex.setitem((rows, columns), 2)
        wanted[np.ix_(rows, columns)] = 2
        key = await x.oindex.key((rows, columns))
        assert (await x.to_numpy(key)).tolist() == [[2, 2]] * 3
        blocks = [block async for block in x.iter_rows(8)]
        assert [block.shape for block in blocks] == [(8, 6), (8, 6), (5, 6)]
        assert np.array_equal(sp.vstack(blocks).toarray(), wanted)
        assert [block.shape async for block in x.iter_rows(2, 17, 20)] == [(2, 6), (1, 6)]
        assert (await x.count(axis=0)).tolist() == (await x.reduce("nnz", axis=0))["nnz"].tolist()
        assert np.allclose(await x.mean(1), wanted.mean(1))
        assert np.allclose(
            [await x.sum(), await x.var(), await x.max()], [wanted.sum(), wanted.var(), wanted.max()]
        )
        assert await x.density() == await x.nnz() / x.size
        table = await x.to_arrow(slice(20, 21))
        assert table["value"].to_pylist() == [2, 1, 1, 1, 1, 2]
        await x.erase_points([[20, 0], [20, 5]])
        assert await x.count((20, slice(None))) == 4
        rows = (await x.to_dask(format="csr"))[:20]
        assert (await x.run(rows.compute)).sum() == pytest.approx(wanted[:20].sum())
        with pytest.raises(ValueError, match="blocks of 1 or more"):
            await anext(x.iter_rows(0))


async def sparse(file: aio.AsyncGroup, path: str) -> aio.AsyncSparse:
    found = await file.getitem(path)
    assert isinstance(found, aio.AsyncSparse)
    return found
