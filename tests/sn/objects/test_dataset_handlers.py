"""Datasets without their values, and their extent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.format.chunk_spec import chunk_spec
from hsparse.sn.objects.dataset_handlers import growth_selection
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ReadObjects
from tests.support.rest_client import RestClient

F64 = "H5T_IEEE_F64LE"
SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [10, 10], "flags": ["H5D_SPARSE_DATA"]}
VARIABLE = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


async def record(node: DataNode, id: str) -> dict[str, Any]:
    return (await node.send(ReadObjects((id,))))[0].unwrap()


async def test_a_small_dataset_is_contiguous(rest: RestClient, root: str) -> None:
    body = {"type": F64, "shape": [200, 300], "link": {"id": root, "name": "d1"}}
    made = await rest("POST", "/datasets", body)
    assert made.status == 201
    assert made["creationProperties"] == {"layout": {"class": "H5D_CONTIGUOUS"}}
    assert made["shape"] == {"class": "H5S_SIMPLE", "dims": [200, 300]}
    assert made["type"] == {"class": "H5T_FLOAT", "base": F64}
    got = await rest("GET", f"/datasets/{made['id']}", getalias=1)
    assert got["layout"] == {"class": "H5D_CHUNKED", "dims": [200, 300]}
    assert (got["domain"], got["alias"], got["attributeCount"]) == (rest.domain, ["/d1"], 0)
    assert (await rest("GET", "/datasets"))["datasets"] == [made["id"]]
    assert (await rest("GET", "/datasets/", h5path="/d1"))["id"] == made["id"]


async def test_resizable_with_filters_and_fill_value(rest: RestClient, node: DataNode) -> None:
    filters = [
        {"class": "H5Z_FILTER_SHUFFLE", "id": 2, "name": "shuffle"},
        {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 4, "name": "deflate"},
    ]
    properties = {"layout": {"class": "H5D_CHUNKED", "dims": [100]}, "filters": filters, "fillValue": 42}
    body = {"type": "H5T_STD_I32LE", "shape": [10], "maxdims": [0], "creationProperties": properties}
    made = await rest("POST", "/datasets", body)
    assert made["shape"] == {"class": "H5S_SIMPLE", "dims": [10], "maxdims": ["H5S_UNLIMITED"]}
    got = await rest("GET", f"/datasets/{made['id']}")
    assert got["creationProperties"] == properties, "a client sees what it asked for"
    assert got["layout"]["dims"][0] * 4 >= 1024 * 1024, "the chunks are enlarged"
    spec = chunk_spec(await record(node, made["id"]))
    assert list(spec.dims) == got["layout"]["dims"]
    assert spec.fill == np.int32(42).tobytes()
    assert [one.id for one in spec.filters[0]] == [2, 1]


async def test_scalar_and_null(rest: RestClient) -> None:
    scalar = await rest("POST", "/datasets", {"type": VARIABLE})
    assert scalar["shape"] == {"class": "H5S_SCALAR"}
    assert scalar["creationProperties"] == {"layout": {"class": "H5D_CONTIGUOUS"}}
    null = await rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": "H5S_NULL"})
    assert null["shape"] == {"class": "H5S_NULL"}
    assert null["creationProperties"] == {"layout": {}}
    for made in (scalar, null):
        assert (await rest("GET", f"/datasets/{made['id']}")).status == 200


SELECTION = {"section": "H5_SECTION_SELECTION"}


async def test_sparse(rest: RestClient, node: DataNode) -> None:
    filters = [
        {"class": "H5Z_FILTER_DEFLATE", "id": 1, "name": "gzip", "level": 6} | SELECTION,
        {"class": "H5Z_FILTER_ZSTD", "id": 32015, "name": "zstd", "section": "H5_SECTION_FIXED"},
    ]
    body = {
        "type": F64,
        "shape": [10**9, 10**9],
        "creationProperties": {"layout": SPARSE, "filters": filters},
    }
    made = await rest("POST", "/datasets", body)
    assert made.status == 201
    got = await rest("GET", f"/datasets/{made['id']}")
    assert got["creationProperties"]["layout"] == got["layout"] == SPARSE
    assert got["creationProperties"]["filters"] == filters
    spec = chunk_spec(await record(node, made["id"]))
    assert (spec.sparse, spec.dims) == (True, (10, 10))
    assert [[one.id for one in pipeline] for pipeline in spec.filters] == [[1], [32015]]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ([], 400),
        ({"type": "H5T_FOO", "shape": [1]}, 400),
        ({"type": F64, "shape": [-1]}, 400),
        ({"type": F64, "shape": [2**62, 4]}, 400),
        ({"type": F64, "shape": [1] * 33}, 400),
        ({"type": F64, "shape": "x"}, 400),
        ({"type": F64, "shape": [10], "maxdims": [5]}, 400),
        ({"type": F64, "shape": [10], "maxdims": [5, 5]}, 400),
        ({"type": F64, "maxdims": [5]}, 400),
        ({"type": F64, "shape": [10], "creationProperties": {"layout": {"class": "H5D_FOO"}}}, 400),
        ({"type": F64, "shape": [10], "creationProperties": {"layout": "H5D_CHUNKED"}}, 400),
        (
            {
                "type": F64,
                "shape": [10],
                "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [11]}},
            },
            400,
        ),
        (
            {
                "type": F64,
                "shape": [10],
                "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [0]}},
            },
            400,
        ),
        (
            {
                "type": F64,
                "shape": [10],
                "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [1, 1]}},
            },
            400,
        ),
        ({"type": F64, "shape": [10**5], "creationProperties": {"layout": {"class": "H5D_COMPACT"}}}, 400),
        ({"type": F64, "shape": [10], "creationProperties": {"filters": ["nope"]}}, 400),
        ({"type": F64, "shape": [10], "creationProperties": {"filters": "gzip"}}, 400),
        ({"type": F64, "shape": [10], "creationProperties": {"fillValue": "x"}}, 400),
        ({"type": F64, "shape": [10], "creationProperties": {"layout": {"class": "H5D_CHUNKED_REF"}}}, 400),
        ({"type": F64, "shape": [9, 20], "creationProperties": {"layout": SPARSE}}, 400),
        ({"type": F64, "shape": [20], "creationProperties": {"layout": SPARSE}}, 400),
        ({"type": F64, "creationProperties": {"layout": SPARSE}}, 400),
        (
            {
                "type": VARIABLE,
                "shape": [2**11, 2**11],
                "creationProperties": {"layout": SPARSE | {"dims": [2**11, 2**11], "flags": ["H5D_VL_DATA"]}},
            },
            400,
        ),
        ({"type": F64, "shape": [20, 20], "creationProperties": {"layout": SPARSE | {"flags": ["X"]}}}, 400),
        ({"type": F64, "shape": [20, 20], "creationProperties": {"layout": SPARSE | {"flags": []}}}, 400),
        (
            {
                "type": F64,
                "shape": [20, 20],
                "creationProperties": {"layout": SPARSE | {"flags": ["H5D_SPARSE_DATA", "H5D_VL_DATA"]}},
            },
            400,
        ),
        (
            {
                "type": F64,
                "shape": [2**20, 2**20],
                "creationProperties": {"layout": SPARSE | {"dims": [2**16, 2**16]}},
            },
            400,
        ),
        ({"type": F64, "shape": [2], "value": [1]}, 400),
        ({"type": F64, "shape": [2], "value_base64": "AAAA"}, 400),
        ({"type": F64, "shape": [1], "value_base64": "AAAAAAAA8D8=", "value": [1]}, 400),
        ({"type": F64, "shape": "H5S_NULL", "value": 1}, 400),
        ({"type": F64, "shape": [10**12], "value": 1}, 413),
    ],
)
async def test_what_cannot_be_is_refused_at_creation(
    rest: RestClient, root: str, body: object, status: int
) -> None:
    if isinstance(body, dict):
        body = body | {"link": {"id": root, "name": "d"}}
    reply = await rest("POST", "/datasets", body)
    assert reply.status == status
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
    made = await rest(
        "POST", "/datasets", {"type": F64, "shape": [2], "creationProperties": {"fillValue": float("nan")}}
    )
    assert made.status == 201
    assert np.isnan(np.frombuffer(chunk_spec(await record(node, made["id"])).fill, "<f8")[0])


@pytest.mark.parametrize(
    ("given", "name"), [(float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf")]
)
async def test_a_fill_value_is_answered_as_it_was_given(rest: RestClient, given: float, name: str) -> None:
    for value in (given, name):
        body = {"type": F64, "shape": [2], "creationProperties": {"fillValue": value}}
        made = await rest("POST", "/datasets", body)
        got = await rest("GET", f"/datasets/{made['id']}")
        for answer in made, got:
            assert str(answer["creationProperties"]["fillValue"]) == str(value)
            assert type(answer["creationProperties"]["fillValue"]) is type(value)
        ignored = await rest("GET", f"/datasets/{made['id']}", ignore_nan=1)
        assert ignored["creationProperties"]["fillValue"] == name
    refused = {"type": "H5T_STD_I32LE", "shape": [2], "creationProperties": {"fillValue": given}}
    assert (await rest("POST", "/datasets", refused)).status == 400


async def test_one_number_fills_every_field(rest: RestClient, node: DataNode) -> None:
    kind = {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": F64} for name in "xyz"]}
    made = await rest(
        "POST", "/datasets", {"type": kind, "shape": [2], "creationProperties": {"fillValue": 3.12}}
    )
    assert made["creationProperties"]["fillValue"] == 3.12
    fill = chunk_spec(await record(node, made["id"])).fill
    assert np.frombuffer(fill, "<f8").tolist() == [3.12, 3.12, 3.12]
    mixed = {
        "class": "H5T_COMPOUND",
        "fields": [{"name": "x", "type": F64}, {"name": "n", "type": "H5T_STD_U8LE"}],
    }
    for type_, bad in (kind, [3.12]), (kind, [1, 2]), (kind, "abc"), (kind, True), (mixed, 1.5), (mixed, 256):
        body = {"type": type_, "shape": [2], "creationProperties": {"fillValue": bad}}
        assert (await rest("POST", "/datasets", body)).status == 400, bad


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
    properties = {"layout": {"class": "H5D_CHUNKED", "dims": [2]}}
    id = (
        await rest(
            "POST", "/datasets", {"type": F64, "shape": [9], "maxdims": [0], "creationProperties": properties}
        )
    )["id"]
    await rest("PUT", f"/datasets/{id}/shape", {"shape": [3]})
    shown = (await rest("GET", f"/datasets/{id}")).body
    assert not {"askedLayout", "generation", "trim"} & set(shown)


async def dataset(rest: RestClient, shape: list[int], maxdims: list[object]) -> str:
    made = await rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": shape, "maxdims": maxdims})
    assert made.status == 201
    return f"/datasets/{made['id']}/shape"


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
        ({"shape": [11, 21]}, 409),
        ({"extend": 11, "extend_dim": 1}, 409),
        ({"shape": [1]}, 400),
        ({"shape": [-1, 5]}, 400),
        ({"shape": "x"}, 400),
        ({"extend": 0}, 400),
        ({"extend": 1, "extend_dim": 2}, 400),
        ({"extend": 1, "shape": [11, 11]}, 400),
        ({}, 400),
        ([], 400),
    ],
)
async def test_what_cannot_be(rest: RestClient, body: object, status: int) -> None:
    path = await dataset(rest, [10, 10], [0, 20])
    assert (await rest("PUT", path, body)).status == status
    assert (await rest("GET", path))["shape"]["dims"] == [10, 10]


async def test_what_is_not_extensible(rest: RestClient) -> None:
    for shape in ([10], [], "H5S_NULL"):
        made = await rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": shape})
        assert (await rest("PUT", f"/datasets/{made['id']}/shape", {"shape": [20]})).status == 400


@pytest.mark.parametrize(
    ("before", "after", "selection"),
    [
        ((1, 2, 3), (1, 5, 3), "[:,2:5,:]"),
        ((1, 2), (2, 3), None),
        ((1, 2), (1, 1), None),
        ((2,), (2,), None),
        ((3, 3), (2, 4), None),
    ],
)
def test_grown(before: tuple[int, ...], after: tuple[int, ...], selection: str | None) -> None:
    assert growth_selection(before, after) == selection


async def test_an_extent_of_more_than_63_bits_is_refused(rest: RestClient) -> None:
    line = await dataset(rest, [10], [0])
    plane = await dataset(rest, [2**40, 2**20], [0, 0])
    assert (await rest("PUT", line, {"extend": 2**63 - 5})).status == 400
    assert (await rest("PUT", line, {"extend": 2**64 - 1})).status == 400
    assert (await rest("PUT", plane, {"extend": 2**62})).status == 400
    assert (await rest("GET", line))["shape"]["dims"] == [10]
    assert (await rest("GET", plane))["shape"]["dims"] == [2**40, 2**20]
