"""Domains and folders of `hsparse.aio`; and that it has all that the client has."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import hsparse
from hsparse import aio
from hsparse.aio.async_dataset import AsyncIndex
from hsparse.aio.async_group import AsyncNamedType
from hsparse.aio.async_mapping import AsyncAttributes
from hsparse.client.anndata.query import Query
from hsparse.client.attributes import Attributes
from hsparse.client.group import NamedType
from hsparse.client.sparse_dataset import OrthogonalIndex

PAIRS = {
    hsparse.SparseDataset: aio.AsyncSparse,
    hsparse.DenseDataset: aio.AsyncDense,
    hsparse.Group: aio.AsyncGroup,
    hsparse.File: aio.AsyncFile,
    hsparse.Folder: aio.AsyncFolder,
    Query: aio.AsyncQuery,
    Attributes: AsyncAttributes,
    OrthogonalIndex: AsyncIndex,
    NamedType: AsyncNamedType,
}
OPERATORS = {
    "__getitem__": "getitem",
    "__setitem__": "setitem",
    "__delitem__": "delitem",
    "__contains__": "contains",
}
LEFT_OUT = {
    "create",  # `AsyncGroup.create_sparse`
    "open",  # `AsyncGroup.getitem`
    "close",  # the end of `aio.open`
    "connection",  # these are parts of the object that waits, `sync`
    "record",
    "type",
    "source",
    "labels",
    "check_extent",
    # h5py's habits, of `sync`
    *(
        "acls",
        "batch",
        "bodies",
        "copy",
        "create_object",
        "flush",
        "follow",
        "mode",
        "move",
        "nbytes",
        "require_dataset",
    ),
    *("compression", "compression_opts", "fletcher32", "require_dataset", "shuffle"),
    *("tree", "visit", "visititems"),
}


@pytest.mark.parametrize(("sync", "async_"), PAIRS.items(), ids=lambda one: one.__name__)
def test_it_has_every_public_name_of_the_client(sync: type, async_: type) -> None:
    public = {name for name in dir(sync) if not name.startswith("_")}
    wanted = public | {OPERATORS[name] for name in OPERATORS if hasattr(sync, name)}
    assert wanted - LEFT_OUT <= set(dir(async_))


async def test_it_has_every_public_attribute_of_the_clients_objects(address: str) -> None:
    async with aio.open(address, "x") as file, aio.open(address.rpartition("/")[0]) as folder:
        assert isinstance(file, aio.AsyncFile)
        objects: list[Any] = [
            file,
            folder,
            await file.create_group("g"),
            await file.create_sparse("x", (1,), "f4", (1,)),
            await file.create_dataset("y", data=[1]),
        ]
        for one in objects:
            known = {name for name in vars(one.sync) if not name.startswith("_")}
            for name in known - LEFT_OUT:
                found, wanted = getattr(one, name), getattr(one.sync, name)
                assert (found.sync if isinstance(found, aio.AsyncObject) else found) == wanted


async def test_a_folder(address: str) -> None:
    url, _, name = address.rpartition("/")
    hsparse.open(address, "x")
    async with aio.open(url) as folder:
        assert isinstance(folder, aio.AsyncFolder)
        assert name in await folder.keys()
        assert isinstance(await folder.getitem(name), aio.AsyncFile)
        below = await folder.create_folder(f"{name}-folder")
        assert await below.len() == 0
        assert {f"/{name}", below.name} <= {record["name"] async for record in folder.records()}


async def test_an_anndata_is_stored_read_and_queried(address: str) -> None:
    counts = sp.random_array((30, 4), density=0.5, format="csr", rng=np.random.default_rng(1))
    obs = pd.DataFrame({"kind": list("abc") * 10}, index=[f"c{i}" for i in range(30)])
    data = anndata.AnnData(counts, obs, pd.DataFrame(index=list("wxyz")))
    async with aio.open(address, "x") as file:
        assert isinstance(file, aio.AsyncFile)
        await file.write_anndata(data)
        assert (await file.to_anndata()).obs.equals((await file.run(lambda: file.sync.to_anndata())).obs)
        lazy = await file.to_anndata(lazy=True)
        assert (await file.run(lazy.X.compute)).nnz == counts.nnz
        query = await file.query(obs="kind == 'b'", var=["z", "w"])
        assert (await query.n_obs(), await query.n_vars()) == (10, 2)
        assert (await query.rows()).tolist() == list(range(1, 30, 3))
        assert (await query.variables()).tolist() == [3, 0]
        assert (await query.obs())["kind"].tolist() == ["b"] * 10
        assert (await query.var()).index.tolist() == ["z", "w"]
        wanted = counts.toarray()[1::3][:, [3, 0]]
        assert np.array_equal((await query.to_scipy()).toarray(), wanted)
        assert np.array_equal((await query.to_anndata()).X.toarray(), wanted)
        parts = [part.X.toarray() async for part in query.iter(4)]
        assert np.array_equal(np.vstack(parts), wanted)
        file.refresh()
        x = await file.getitem("X")
        assert isinstance(x, aio.AsyncSparse)
        assert (await x.oindex.getitem((slice(None), ["y"]))).toarray().ravel().tolist() == counts.toarray()[
            :, 2
        ].tolist()


async def test_an_error_of_opening_is_raised(address: str) -> None:
    with pytest.raises(KeyError):
        async with aio.open(address):
            pass


async def test_an_error_in_the_context_leaves_what_mode_w_was_to_replace(address: str) -> None:
    async with aio.open(address, "w") as file:
        await file.create_group("old")
    with pytest.raises(ZeroDivisionError):
        async with aio.open(address, "w"):
            raise ZeroDivisionError
    async with aio.open(address) as file:
        assert await file.keys() == ["old"]
    async with aio.open(address, "w"):
        pass
    async with aio.open(address) as file:
        assert await file.keys() == []
