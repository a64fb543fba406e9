"""Products with a matrix over HTTP, against numpy: types, dense and sparse, selections, undefined elements, pages."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from tests.sn.value_client import BINARY, create, sparse, value_client
from tests.sn.values.test_reduce import NAMES, dataset
from tests.support.rest_client import RestClient

SELECTIONS = {
    "all": (None, np.s_[:, :]),
    "a box": ("[2:7,3:12]", np.s_[2:7, 3:12]),
    "steps": ("[1:9:2,0:13:3]", np.s_[1:9:2, 0:13:3]),
    "lists": ([[0, 4, 8], [1, 2, 11]], np.ix_([0, 4, 8], [1, 2, 11])),
    "none": ("[3:3,:]", np.s_[3:3, :]),
}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(nodes=2) as made:
        yield made


@pytest.mark.parametrize("select", SELECTIONS)
@pytest.mark.parametrize(("kind", "layout"), list(itertools.product(NAMES, ("dense", "sparse"))))
async def test_products_are_those_of_numpy(client: RestClient, kind: str, layout: str, select: str) -> None:
    rng = np.random.default_rng(5)
    path, model, there = await dataset(client, kind, 2, layout, rng, fill=3)
    text, places = SELECTIONS[select]
    chosen, defined = model.astype(float)[places], there[places]
    for undefined, width in (("fill", 4), ("skip", 1)):
        matrix = rng.normal(size=(chosen.shape[1], width))
        wanted = np.where(defined | (undefined == "fill"), chosen, 0.0) @ matrix
        body = {"matrix": matrix.tolist(), "undefined": undefined} | (
            {} if text is None else {"select": text}
        )
        reply = await client("POST", f"{path}/product", body)
        assert reply.status == 200, reply.body
        assert reply["shape"] == list(wanted.shape)
        found = np.array(reply["value"], float).reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-9)
        if not isinstance(text, list):
            options = {"undefined": undefined} | ({} if text is None else {"select": text})
            reply = await client("POST", f"{path}/product", matrix.tobytes(), accept=BINARY, **options)
            assert reply.status == 200, reply.body
            np.testing.assert_array_equal(np.frombuffer(reply.body, "<f8").reshape(wanted.shape), found)


async def test_many_pages(client: RestClient) -> None:
    """Rows that lie in several pages are added up."""
    rng = np.random.default_rng(2)
    model = np.where(rng.random((120, 90)) < 0.3, rng.normal(size=(120, 90)), 0.0)
    matrix = rng.normal(size=(90, 5))
    for layout in (sparse(32, 16), {"class": "H5D_CHUNKED", "dims": [32, 16]}):
        path = await create(client, [120, 90], NAMES[">f8"], layout=layout)
        options = {"drop_fill": 1} if layout["class"] != "H5D_CHUNKED" else {}
        assert (await client("PUT", f"{path}/value", model.astype(">f8").tobytes(), **options)).status == 200
        reply = await client("POST", f"{path}/product", matrix.tobytes(), accept=BINARY, undefined="fill")
        found = np.frombuffer(reply.body, "<f8").reshape(120, 5)
        np.testing.assert_allclose(found, model @ matrix, rtol=1e-12, atol=1e-9)


BAD: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "no word on what is undefined": ("sparse", [[1.0]] * 13, {}, "undefined"),
    "another number of rows": ("dense", [[1.0]] * 12, {}, "13 rows"),
    "rows of two lengths": ("dense", [[1.0]] * 12 + [[1.0, 2.0]], {}, "13 rows"),
    "no columns": ("dense", [[]] * 13, {}, "no columns"),
    "text": ("dense", [["a"]] * 13, {}, "13 rows"),
    "an unknown key": ("dense", [[1.0]] * 13, {"by": "x"}, "by"),
    "an index twice": ("dense", [[1.0]] * 2, {"select": [[0], [1, 1]]}, "ascend"),
    "an unknown word": ("sparse", [[1.0]] * 13, {"undefined": "drop"}, "skip"),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_is_no_product_is_refused(client: RestClient, case: str) -> None:
    layout, matrix, more, reason = BAD[case]
    path, _, _ = await dataset(client, "i8", 2, layout, np.random.default_rng(1))
    reply = await client("POST", f"{path}/product", {"matrix": matrix, **more})
    assert reply.status == 400
    assert reason in reply["error"]["message"]


async def test_bytes_that_are_no_rows_are_refused(client: RestClient) -> None:
    path, _, _ = await dataset(client, "i8", 2, "dense", np.random.default_rng(1))
    assert (await client("POST", f"{path}/product", bytes(8 * 13 + 1))).status == 400
    assert (await client("POST", f"{path}/product", {})).status == 400


async def test_only_matrices_of_numbers_have_products(client: RestClient) -> None:
    cube, _, _ = await dataset(client, "i8", 3, "dense", np.random.default_rng(1))
    text = await create(client, [3, 3], {"class": "H5T_STRING", "length": 4, "charSet": "H5T_CSET_ASCII"})
    none = await create(client, [3, 3], NAMES[">f8"], layout=sparse(2, 2), fillValue="nan")
    for path, rows in ((cube, 7), (text, 3), (none, 3)):
        reply = await client("POST", f"{path}/product", {"matrix": [[1.0]] * rows, "undefined": "fill"})
        assert reply.status == 400, reply.body


async def test_a_result_has_a_limit(client: RestClient) -> None:
    path = await create(client, [100_000_000, 2], NAMES["u4"], layout=sparse(1000, 2))
    reply = await client("POST", f"{path}/product", {"matrix": [[1.0], [1.0]], "undefined": "skip"})
    assert reply.status == 413
    assert "max_request_size" in reply["error"]["message"]


@pytest.mark.parametrize("layout", [sparse(2, 2), {"class": "H5D_CHUNKED", "dims": [2, 2]}])
async def test_what_is_not_finite_stays_in_its_row(client: RestClient, layout: dict[str, Any]) -> None:
    model = np.array([[np.inf, 1.0, -np.inf], [np.nan, 1.0, 2.0], [1.0, 2.0, 3.0]])
    path = await create(client, [3, 3], NAMES[">f8"], layout=layout)
    assert (await client("PUT", f"{path}/value", model.astype(">f8").tobytes())).status == 200
    body = np.ones((3, 1)).tobytes()
    reply = await client("POST", f"{path}/product", body, accept=BINARY, undefined="fill")
    assert np.frombuffer(reply.body, "<f8").tolist()[2] == 6.0
    assert np.isnan(np.frombuffer(reply.body, "<f8")[:2]).all()
    reply = await client("POST", f"{path}/product", body, undefined="fill")
    assert reply["value"] == [[None], [None], [6.0]]
