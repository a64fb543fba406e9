"""Datasets without their values, their extent, and waiting for another one."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from hsparse.format.chunk_spec import chunk_spec
from hsparse.sn.objects import extent_polling
from hsparse.sn.objects.dataset_handlers import growth_selection
from hsparse.sn.request import Request
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ReadObjects
from tests.sn.dataset_kinds import F64, I32, TEXT, U8, chunked
from tests.sn.value_client import create, put
from tests.support.rest_client import Reply, RestClient, answered

SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [10, 10], "flags": ["H5D_SPARSE_DATA"]}


async def record(node: DataNode, id: str) -> dict[str, Any]:
    return (await node.send(ReadObjects((id,))))[0].unwrap()


async def test_a_small_dataset_is_contiguous(rest: RestClient, root: str) -> None:
    body = {"type": F64, "shape": [200, 300], "link": {"id": root, "name": "d1"}}
    made = await answered(rest("POST", "/datasets", body), 201)
    assert made["creationProperties"] == {"layout": {"class": "H5D_CONTIGUOUS"}}
    assert made["shape"] == {"class": "H5S_SIMPLE", "dims": [200, 300]}
    assert made["type"] == {"class": "H5T_FLOAT", "base": F64}
    got = await rest("GET", f"/datasets/{made['id']}", getalias=1)
    assert got["layout"] == chunked(200, 300)
    assert (got["domain"], got["alias"], got["attributeCount"]) == (rest.domain, ["/d1"], 0)
    assert (await rest("GET", "/datasets"))["datasets"] == [made["id"]]
    assert (await rest("GET", "/datasets/", h5path="/d1"))["id"] == made["id"]


async def test_resizable_with_filters_and_fill_value(rest: RestClient, node: DataNode) -> None:
    filters = [
        {"class": "H5Z_FILTER_SHUFFLE", "id": 2, "name": "shuffle"},
        {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 4, "name": "deflate"},
    ]
    properties: dict[str, Any] = {"layout": chunked(100), "filters": filters, "fillValue": 42}
    made = await create_in(rest, type=I32, shape=[10], maxdims=[0], **properties)
    assert made["shape"] == {"class": "H5S_SIMPLE", "dims": [10], "maxdims": ["H5S_UNLIMITED"]}
    got = await rest("GET", f"/datasets/{made['id']}")
    assert got["creationProperties"] == properties, "a client sees what it asked for"
    assert got["layout"]["dims"][0] * 4 >= 1024 * 1024, "the chunks are enlarged"
    spec = chunk_spec(await record(node, made["id"]))
    assert list(spec.dims) == got["layout"]["dims"]
    assert spec.fill == np.int32(42).tobytes()
    assert [one.id for one in spec.filters[0]] == [2, 1]


async def test_scalar_and_null(rest: RestClient) -> None:
    scalar = await rest("POST", "/datasets", {"type": TEXT})
    assert scalar["shape"] == {"class": "H5S_SCALAR"}
    assert scalar["creationProperties"] == {"layout": {"class": "H5D_CONTIGUOUS"}}
    null = await rest("POST", "/datasets", {"type": I32, "shape": "H5S_NULL"})
    assert (null["shape"], null["creationProperties"]) == ({"class": "H5S_NULL"}, {"layout": {}})
    for made in (scalar, null):
        assert (await rest("GET", f"/datasets/{made['id']}")).status == 200


SELECTION = {"section": "H5_SECTION_SELECTION"}


async def create_in(rest: RestClient, status: int = 201, **body: Any) -> Reply:
    """Create a dataset; what is no key of a dataset is a creation property."""
    properties = {key: body.pop(key) for key in ("layout", "filters", "fillValue") if key in body}
    return await answered(
        rest("POST", "/datasets", {"type": F64} | body | {"creationProperties": properties}), status
    )


async def test_sparse(rest: RestClient, node: DataNode) -> None:
    filters = [
        {"class": "H5Z_FILTER_DEFLATE", "id": 1, "name": "gzip", "level": 6} | SELECTION,
        {"class": "H5Z_FILTER_ZSTD", "id": 32015, "name": "zstd", "section": "H5_SECTION_FIXED"},
    ]
    made = await create_in(rest, shape=[10**9, 10**9], layout=SPARSE, filters=filters)
    got = await rest("GET", f"/datasets/{made['id']}")
    assert got["creationProperties"]["layout"] == got["layout"] == SPARSE
    assert got["creationProperties"]["filters"] == filters
    spec = chunk_spec(await record(node, made["id"]))
    assert (spec.sparse, spec.dims) == (True, (10, 10))
    assert [[one.id for one in pipeline] for pipeline in spec.filters] == [[1], [32015]]


def chunked_of(shape: list[int], *dims: int) -> dict[str, Any]:
    return {"shape": shape, "creationProperties": {"layout": chunked(*dims)}}


def sparse_of(shape: list[int], **changes: Any) -> dict[str, Any]:
    return {"shape": shape, "creationProperties": {"layout": SPARSE | changes}}


REFUSED: list[dict[str, Any]] = [
    {"type": None},
    {"type": "H5T_FOO", "shape": [1]},
    *({"shape": shape} for shape in ([-1], [2**62, 4], [1] * 33, "x")),
    *({"shape": [10], "maxdims": most} for most in ([5], [5, 5])),
    {"maxdims": [5]},
    *(
        {"shape": [10], "creationProperties": {"layout": one}}
        for one in ({"class": "H5D_FOO"}, "H5D_CHUNKED")
    ),
    {"shape": [10], "creationProperties": {"layout": {"class": "H5D_CHUNKED_REF"}}},
    *(chunked_of([10], *dims) for dims in ((11,), (0,), (1, 1))),
    {"shape": [10**5], "creationProperties": {"layout": {"class": "H5D_COMPACT"}}},
    *({"shape": [10], "creationProperties": {"filters": filters}} for filters in (["nope"], "gzip")),
    {"shape": [10], "creationProperties": {"fillValue": "x"}},
    *({"shape": shape, "creationProperties": {"layout": SPARSE}} for shape in ([9, 20], [20], [])),
    {"type": TEXT} | sparse_of([2**11] * 2, dims=[2**11] * 2, flags=["H5D_VL_DATA"]),
    *(
        sparse_of([20, 20], flags=flags)
        for flags in (["X"], [], ["H5D_SPARSE_DATA", "H5D_VL_DATA"], ["H5D_VL_DATA"])
    ),
    sparse_of([20, 20], dims=[0, 4]),
    sparse_of([2**20, 2**20], dims=[2**16, 2**16]),
    {
        "shape": [20, 20],
        "creationProperties": {
            "layout": SPARSE,
            "filters": [{"class": "H5Z_FILTER_DEFLATE", "section": "H5_SECTION_OTHER"}],
        },
    },
    {"shape": [2], "value": [1]},
    {"shape": [2], "value_base64": "AAAA"},
    {"shape": [1], "value_base64": "AAAAAAAA8D8=", "value": [1]},
    {"shape": "H5S_NULL", "value": 1},
]


@pytest.mark.parametrize(
    ("body", "status"),
    [([], 400), *((one, 400) for one in REFUSED), ({"shape": [10**12], "value": 1}, 413)],
    ids=str,
)
async def test_what_cannot_be_is_refused_at_creation(
    rest: RestClient, root: str, body: object, status: int
) -> None:
    if isinstance(body, dict):
        body = {"type": F64, "link": {"id": root, "name": "d"}} | body
    reply = await answered(rest("POST", "/datasets", body), status)
    assert reply["error"]["message"].endswith(".")
    assert (await rest("GET", f"/groups/{root}"))["linkCount"] == 0


async def test_several_one_of_them_wrong(rest: RestClient, root: str) -> None:
    good = {"type": F64, "shape": [2], "link": {"id": root, "name": "a"}}
    assert (await rest("POST", "/datasets", [good, {"type": "H5T_FOO"}])).status == 400
    assert (await rest("GET", "/datasets"))["datasets"] == []
    made = await rest("POST", "/datasets", [good, good | {"link": {"id": root, "name": "b"}}])
    assert len(made["objects"]) == 2
    assert (await rest("POST", "/datasets", [good, good])).status == 409


async def test_a_fill_value_that_is_not_finite(rest: RestClient, node: DataNode) -> None:
    made = await create_in(rest, shape=[2], fillValue=float("nan"))
    assert np.isnan(np.frombuffer(chunk_spec(await record(node, made["id"])).fill, "<f8")[0])


async def test_one_number_fills_every_field(rest: RestClient, node: DataNode) -> None:
    kind = {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": F64} for name in "xyz"]}
    made = await create_in(rest, type=kind, shape=[2], fillValue=3.12)
    fill = chunk_spec(await record(node, made["id"])).fill
    assert np.frombuffer(fill, "<f8").tolist() == [3.12, 3.12, 3.12]
    mixed = kind | {"fields": [{"name": "x", "type": F64}, {"name": "n", "type": U8}]}
    for type_, bad in ((kind, True), (mixed, 1.5), (mixed, 256)):
        await create_in(rest, 400, type=type_, shape=[2], fillValue=bad)


async def test_type_and_deletion(rest: RestClient) -> None:
    id = (await rest("POST", "/datasets", {"type": F64, "shape": [2]}))["id"]
    assert (await rest("GET", f"/datasets/{id}/type"))["type"] == {"class": "H5T_FLOAT", "base": F64}
    assert (await rest("GET", f"/datasets/{id}", verbose=1))["num_chunks"] == 0
    assert (await rest("DELETE", f"/datasets/{id}")).status == 200
    for path in ("", "/type", "/shape"):
        assert (await rest("GET", f"/datasets/{id}{path}")).status == 410
    again = await rest("POST", "/datasets", {"type": F64, "shape": [2], "id": id})
    assert (again.status, again["error"]["kind"]) == (409, "conflict")


async def test_our_own_keys_are_not_shown(rest: RestClient) -> None:
    id = (await create_in(rest, shape=[9], maxdims=[0], layout=chunked(2)))["id"]
    await rest("PUT", f"/datasets/{id}/shape", {"shape": [3]})
    shown = (await rest("GET", f"/datasets/{id}")).body
    assert not {"askedLayout", "generation", "trim"} & set(shown)


async def dataset(rest: RestClient, shape: list[int], maxdims: list[object]) -> str:
    return f"/datasets/{(await create_in(rest, shape=shape, maxdims=maxdims))['id']}/shape"


async def test_growing_tells_what_is_new(rest: RestClient) -> None:
    path = await dataset(rest, [10], ["H5S_UNLIMITED"])
    grew = await rest("PUT", path, {"shape": [20]})
    assert (grew.status, grew.body) == (201, {"selection": "[10:20]"})
    assert (await rest("PUT", path, {"extend": 5, "extend_dim": 0})).body == {"selection": "[20:25]"}
    assert (await rest("PUT", path, {"extend": 5})).body == {"selection": "[25:30]"}
    assert (await rest("PUT", path, {"shape": 30})).body == {}
    got = await rest("GET", path)
    assert got["shape"] == {"class": "H5S_SIMPLE", "dims": [30], "maxdims": ["H5S_UNLIMITED"]}


async def test_shrinking_and_growing_again(rest: RestClient) -> None:
    path = await dataset(rest, [10, 10], [0, 20])
    assert (await rest("PUT", path, {"shape": [4, 10]})).body == {}
    assert (await rest("PUT", path, {"shape": [4, 12]})).body == {"selection": "[:,10:12]"}
    assert (await rest("PUT", path, {"shape": [3, 15]})).body == {}
    assert (await rest("GET", path))["shape"]["dims"] == [3, 15]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *(({"shape": [11, 21]}, 409), ({"extend": 11, "extend_dim": 1}, 409), ({}, 400), ([], 400)),
        *(({"shape": shape}, 400) for shape in ([1], [-1, 5], "x")),
        *(
            ({"extend": 0}, 400),
            ({"extend": 1, "extend_dim": 2}, 400),
            ({"extend": 1, "shape": [11, 11]}, 400),
        ),
    ],
)
async def test_what_cannot_be(rest: RestClient, body: object, status: int) -> None:
    path = await dataset(rest, [10, 10], [0, 20])
    assert (await rest("PUT", path, body)).status == status
    assert (await rest("GET", path))["shape"]["dims"] == [10, 10]


async def test_what_is_not_extensible(rest: RestClient) -> None:
    for shape in ([10], [], "H5S_NULL"):
        made = await rest("POST", "/datasets", {"type": I32, "shape": shape})
        assert (await rest("PUT", f"/datasets/{made['id']}/shape", {"shape": [20]})).status == 400


@pytest.mark.parametrize(
    ("before", "after", "selection"),
    [
        ((1, 2, 3), (1, 5, 3), "[:,2:5,:]"),
        *(((1, 2), after, None) for after in ((2, 3), (1, 1))),
        *(((2,), (2,), None), ((3, 3), (2, 4), None)),
    ],
)
def test_grown(before: tuple[int, ...], after: tuple[int, ...], selection: str | None) -> None:
    assert growth_selection(before, after) == selection


async def test_an_extent_of_more_than_63_bits_is_refused(rest: RestClient) -> None:
    line = await dataset(rest, [10], [0])
    plane = await dataset(rest, [2**40, 2**20], [0, 0])
    for path, more in ((line, 2**63 - 5), (line, 2**64 - 1), (plane, 2**62)):
        assert (await rest("PUT", path, {"extend": more})).status == 400
    dims = [(await rest("GET", path))["shape"]["dims"] for path in (line, plane)]
    assert dims == [[10], [2**40, 2**20]]


@pytest.fixture
async def path(client: RestClient) -> str:
    return await create(client, [4, 3], I32, maxdims=[0, 3])


async def test_another_extent_is_answered_at_once(client: RestClient, path: str) -> None:
    assert (await client("GET", f"{path}/shape", wait=60, expect="[3,3]"))["shape"]["dims"] == [4, 3]


APPEND, MOVE = ("value", {"append": 2, "value": 7}), ("shape", {"lower": [-3, 0], "shape": [4, 3]})


@pytest.mark.parametrize(
    ("lower", "known", "change", "dims"),
    [(None, None, APPEND, [6, 3]), (None, "[0,0]", APPEND, [6, 3]), ([-2, 0], "[-2,0]", MOVE, [4, 3])],
    ids=["the end", "no lower bounds", "a window of one length"],
)
async def test_a_change_ends_the_wait(
    client: RestClient,
    monkeypatch: pytest.MonkeyPatch,
    lower: list[int] | None,
    known: str | None,
    change: tuple[str, object],
    dims: list[int],
) -> None:
    least = lower and ["H5S_UNLIMITED", 0]
    path = await create(client, [4, 3], I32, maxdims=[0, 3], lower=lower, minlower=least)
    query = {"expect": "[4,3]"} | ({"expect_lower": known} if known else {})
    waits = asyncio.Event()
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.set()
        await sleep(0)

    monkeypatch.setattr(extent_polling.asyncio, "sleep", noted)
    asked = asyncio.create_task(client("GET", f"{path}/shape", wait=60, **query))
    await waits.wait()
    assert not asked.done()
    assert (await client("PUT", f"{path}/{change[0]}", change[1])).status in (200, 201)
    assert (await asked)["shape"]["dims"] == dims


async def test_who_waits_for_one_dataset_shares_the_looks(
    client: RestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, waiting, go_on, sleep = 0, asyncio.Semaphore(0), asyncio.Event(), asyncio.sleep

    async def noted(seconds: float) -> None:
        nonlocal looks
        looks += 1
        await go_on.wait()

    def entered(request: object) -> None:
        waiting.release()

    monkeypatch.setattr(extent_polling.asyncio, "sleep", noted)
    monkeypatch.setattr(Request, "leave_place", entered)
    asked = [asyncio.create_task(client("GET", f"{path}/shape", wait=60, expect="[4,3]")) for _ in range(5)]
    for _ in asked:
        await waiting.acquire()
    await sleep(0)
    assert looks == 1
    await put(client, path, {"append": 2, "value": 7})
    go_on.set()
    assert [(await one)["shape"]["dims"] for one in asked] == [[6, 3]] * 5


async def test_the_same_extent_is_answered_after_the_time(
    client: RestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extent_polling, "POLL_SECONDS", 0.01)
    assert (await client("GET", f"{path}/shape", wait=1, expect="[4,3]"))["shape"]["dims"] == [4, 3]


@pytest.mark.parametrize(
    "query",
    [
        {"wait": 61, "expect": "[4,3]"},
        {"wait": 5},
        {"wait": 5, "expect": "[4,x]"},
        {"wait": 5, "expect": "[4,-3]"},
        {"wait": 5, "expect": "[4,3]", "expect_lower": "[0,]"},
    ],
)
async def test_a_wait_that_cannot_be(client: RestClient, path: str, query: dict[str, object]) -> None:
    await answered(client("GET", f"{path}/shape", **query), 400)
