"""Virtual datasets in the files of their domains: sparse ones with their values, dense ones with these on request."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.hdf5.virtual_dataset import copied_chunks
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.file_domain import TEXT, fetch
from tests.sn.value_client import create, sparse, value_client
from tests.sn.virtual_dataset.test_virtual_sparse import FLAGS, Elements, filled, pile
from tests.sn.virtual_dataset.test_virtual_values import (
    FILL,
    append,
    box,
    growing,
    link,
    maps,
    mosaic,
    neighbours,
    numbers,
    stored,
    virtual,
)
from tests.support.rest_client import RestClient

__all__ = ["mosaic", "pile"]


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(settings=ServiceSettings(page_size=65536, max_request_size=2_000_000)) as client:
        yield client


async def linked(client: RestClient, path: str) -> None:
    await link(client, (await client("GET", "/"))["root"], "v", path)


def opened(data: bytes) -> h5py.File:
    return h5py.File(io.BytesIO(data))


def check(data: bytes, model: Elements) -> None:
    """Compare values and defined set of `v` with a model."""
    with opened(data) as file:
        values, defined = file["v"][()], file["v.defined"][()]
    places = {(int(i), int(j)): int(values[i, j]) for i, j in zip(*np.nonzero(defined), strict=True)}
    assert places == model
    assert (values[~defined] == FILL).all()


@pytest.mark.parametrize("form", [{}, {"layout": "stock"}, {"layout": "stock", "virtual": "copied"}])
@pytest.mark.parametrize("most", [1 << 20, 24])
async def test_a_sparse_one_has_its_elements(
    client: RestClient,
    pile: tuple[str, Elements],
    form: dict[str, str],
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copied_chunks, "MAX_CHUNK_ELEMENTS", most)
    await linked(client, pile[0])
    check(await fetch(client, **form), pile[1])


@pytest.mark.parametrize("layout", ["csr", "csc"])
async def test_it_is_a_matrix_of_anndata(client: RestClient, pile: tuple[str, Elements], layout: str) -> None:
    await linked(client, pile[0])
    with opened(await fetch(client, layout="stock", matrices=f"anndata-{layout}")) as file:
        arrays = [file[f"v/{name}"][()] for name in ("data", "indices", "indptr")]
    lines = np.repeat(np.arange(len(arrays[2]) - 1), np.diff(arrays[2])).tolist()
    pairs = zip(lines, arrays[1].tolist(), strict=True)
    places = [pair if layout == "csr" else pair[::-1] for pair in pairs]
    assert dict(zip(places, arrays[0].tolist(), strict=True)) == pile[1]


async def test_a_dense_one_has_its_values_if_asked_for(
    client: RestClient, mosaic: tuple[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copied_chunks, "MAX_CHUNK_ELEMENTS", 20)
    await linked(client, mosaic[0])
    with opened(await fetch(client, virtual="copied")) as file:
        assert not file["v"].is_virtual
        assert np.array_equal(file["v"][()], mosaic[1])
    for form in ({}, {"virtual": "kept"}):
        with opened(await fetch(client, **form)) as file:
            assert file["v"].is_virtual
    for form in ({"virtual": "mapped"}, {"virtual": "real"}):
        assert (await client("GET", f"/files{client.domain}", **form)).status == 400


async def test_it_has_the_extent_of_now(client: RestClient) -> None:
    source = await stored(client, "x", numbers(3, 2), maxdims=[0, 2])
    await growing(client, name="v")
    for rows in (3, 4):
        with opened(await fetch(client, virtual="copied")) as file:
            assert np.array_equal(file["v"][()], numbers(rows, 2))
        await append(client, source)


@pytest.mark.parametrize("matrices", ["", "anndata-csr"])
async def test_rows_without_elements_are_rows(client: RestClient, matrices: str) -> None:
    path = await create(client, [3, 2], "H5T_STD_I32LE", maxdims=[0, 2], layout=sparse(4, 2), fillValue=FILL)
    await link(client, (await root(client)).removeprefix("/groups/"), "x", path)
    assert (await client("PUT", f"{path}/value", {"points": [[1, 1]], "value": [5]})).status == 200
    kind = {"type": TEXT, "shape": [], "value": "csr_matrix"}
    v = await growing(client, name="v", flags=FLAGS)
    if matrices:
        assert (await client("PUT", f"{v}/attributes/encoding-type", kind)).status == 201
    for rows in (3, 5):
        assert (await client("PUT", f"{path}/shape", {"shape": [rows, 2]})).status in (200, 201)
        with opened(await fetch(client)) as file:
            if matrices:
                assert file["v/indptr"][()].tolist() == [0, 0, *[1] * (rows - 1)]
                assert file["v"].attrs["shape"].tolist() == [rows, 2]
            else:
                assert file["v"].shape == (rows, 2)
                assert file["v"][1].tolist() == [FILL, 5]


async def test_a_map_says_that_it_has_no_chunks(client: RestClient, pile: tuple[str, Elements]) -> None:
    await linked(client, pile[0])
    source = await stored(client, "x", numbers(3, 2), maxdims=[0, 2])
    await growing(client, name="grows")
    await append(client, source)
    for form in ({}, {"virtual": "copied"}):
        told = await client("GET", "/map", addresses="file", **form)
        assert told.status == 200, told.body
        for name in ("/v", "/grows"):
            assert "is virtual and has no chunks" in told["datasets"][name]["error"]["message"]
        assert told["datasets"]["/one"]["chunks"]


async def test_a_source_that_changes_changes_the_etag(client: RestClient, pile: tuple[str, Elements]) -> None:
    """A range of the file as it was is refused, never that of other elements."""
    path, model = pile
    await linked(client, path)
    url = f"/files{client.domain}"
    etag = (await client("HEAD", url, layout="stock")).headers["ETag"]
    assert (await client("HEAD", url, layout="stock")).headers["ETag"] == etag
    two = (await client("GET", f"{await root(client)}/links/two"))["link"]["id"]
    place = next(place for place in sorted(model) if 16 <= place[0] < 34)
    body = {"points": [[place[0] - 14, place[1]]], "value": [1234]}
    assert (await client("PUT", f"/datasets/{two}/value", body)).status == 200
    headers = {"Range": "bytes=0-9999999", "If-Match": etag}
    assert (await client("GET", url, layout="stock", headers=headers)).status == 412
    check(await fetch(client, layout="stock"), model | {place: 1234})
    assert (await client("HEAD", url, layout="stock")).headers["ETag"] != etag


async def root(client: RestClient) -> str:
    return f"/groups/{(await client('GET', '/'))['root']}"


async def test_a_source_that_is_away_is_named(client: RestClient) -> None:
    mapping = maps("x", box([0, 0], [2, 2]), file="other.h5")
    path = await virtual(client, [4, 2], mapping, flags=FLAGS)
    await linked(client, path)
    refused = await client("GET", f"/files{client.domain}")
    assert refused.status == 404
    assert "The source x in other.h5 of the virtual dataset" in refused["error"]["message"]
    assert (await client("DELETE", f"{await root(client)}/links/v")).status == 200
    await linked(client, await virtual(client, [4, 2], mapping, flags=FLAGS, missing="fill"))
    check(await fetch(client), {})


async def test_a_large_one_is_refused_with_a_remedy(
    client: RestClient, pile: tuple[str, Elements], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copied_chunks, "MAX_COPIED", len(pile[1]) - 1)
    await linked(client, pile[0])
    refused = await client("GET", f"/files{client.domain}")
    assert refused.status == 413
    assert f"has {len(pile[1])} elements" in refused["error"]["message"]
    assert "export its sources, concatenate with --copy" in refused["error"]["message"]


async def test_what_others_may_read_is_not_in_the_file_of_a_reader() -> None:
    """A plan, and what is cached of it, are of all readers: each needs the rights to all sources, of sources, too."""
    async with neighbours(lambda client: filled(client, "x", (6, 8), 3)) as client:
        whole = box([0, 0], [6, 8])
        await virtual(client, [6, 8], maps("x", whole, file="/home/bob/a.h5"), flags=FLAGS, name="inner")
        await virtual(client, [6, 8], maps("inner", whole), flags=FLAGS, name="v")
        url: Any = f"/files{client.domain}"
        ranged = {"Range": "bytes=0-100000"}
        forms = [{"layout": "stock", "matrices": "anndata-csr"}, {"layout": "stock"}]
        for form in forms:
            assert (await client("GET", url, headers=ranged, **form)).status == 206
        client.user = "ann"
        for form, headers in product(forms, (ranged, {})):
            refused = await client("GET", url, headers=headers, **form)
            assert refused.status == 403
            assert refused["error"]["message"] == "ann does not have the right read in /home/bob/a.h5."
