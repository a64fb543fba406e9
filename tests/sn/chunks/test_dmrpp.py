"""DMR++ documents: by a schema, by a parser of DAP4, and by the bytes that they lead to."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import etree
from numcodecs import Shuffle

from hsparse.storage.posix import PosixStore
from tests.sn.chunks.test_kerchunk import linked_dataset, put_attribute
from tests.sn.file_domain import TEXT, fill_domain
from tests.sn.value_client import BINARY, sparse, value_client
from tests.support.rest_client import RestClient

INT = "H5T_STD_I32LE"
SCHEMA = Path(__file__).parents[2] / "data" / "dmrpp" / "dap4.xsd"
NAMES = {"d": "http://xml.opendap.org/ns/DAP/4.0#", "p": "http://xml.opendap.org/dap/dmrpp/1.0.0#"}
HREF = f"{{{NAMES['p']}}}href"
NUMPY = {"Int": "i", "UInt": "u", "Float": "f"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with value_client(PosixStore(tmp_path, fsync=False)) as client:
        yield client


def schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(SCHEMA))


async def document(client: RestClient, path: str = "", **options: Any) -> etree._Element:
    """Return a document, which the schema accepts."""
    reply = await client("GET", f"{path}/map", format="dmrpp", **options)
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"] == "application/xml"
    found = etree.fromstring(reply.body)
    schema().assertValid(found)
    return found


def variables(document: etree._Element, group: str = "") -> dict[str, etree._Element]:
    """Return the variables of a document by their paths."""
    found = {}
    for one in document:
        name = etree.QName(one).localname
        if name == "Group":
            found |= variables(one, f"{group}/{one.get('name')}")
        elif name not in ("Dimension", "Attribute"):
            found[f"{group}/{one.get('name')}"] = one
    return found


def left_out(group: etree._Element) -> list[str]:
    told = group.xpath("d:Attribute[@name='hsparse_left_out']/d:Value/text()", namespaces=NAMES)
    return [str(one) for one in told]


def sizes(variable: etree._Element) -> list[int]:
    """Return the sizes of a variable's dimensions, each declared by the group it is in or one around it."""
    root = variable.getroottree().getroot()
    found = []
    for dim in variable.findall("d:Dim", NAMES):
        size, path = dim.get("size"), dim.get("name")
        assert (size is None) != (path is None)
        if path is not None:
            *groups, name = path.strip("/").split("/")
            place = root
            for group in groups:
                (place,) = place.xpath("d:Group[@name=$name]", namespaces=NAMES, name=group)
            assert place in list(variable.iterancestors())
            (size,) = place.xpath("d:Dimension[@name=$name]/@size", namespaces=NAMES, name=name)
        found.append(int(str(size)))
    return found


def read(variable: etree._Element) -> np.ndarray:
    """Return a variable's values, read from where its chunks are told to be."""
    kind = etree.QName(variable).localname
    (chunks,) = variable.findall("p:chunks", NAMES)
    letters = kind.rstrip("0123456789")
    order = {"LE": "<", "BE": ">"}[chunks.get("byteOrder")]
    dtype = np.dtype(f"{order}{NUMPY[letters]}{int(kind[len(letters) :]) // 8}")
    shape = sizes(variable)
    result = np.full(shape, dtype.type(chunks.get("fillValue")), dtype)
    dims = list(map(int, (chunks.findtext("p:chunkDimensionSizes", "", NAMES)).split()))
    for chunk in chunks.findall("p:chunk", NAMES):
        path = chunk.get("href") or variable.getroottree().getroot().get(HREF)
        start, size = int(chunk.get("offset")), int(chunk.get("nBytes"))
        data: Any = Path(path).read_bytes()[start : start + size]
        assert len(data) == size
        for name in reversed(chunks.get("compressionType", "").split()):
            if name == "deflate":
                data = zlib.decompress(data)
            elif name == "shuffle":
                data = Shuffle(dtype.itemsize).decode(data)
            else:
                data = data[:-4]
        position = (
            list(map(int, (chunk.get("chunkPositionInArray") or "[]")[1:-1].split(","))) if dims else []
        )
        place = tuple(slice(at, at + dim) for at, dim in zip(position, dims, strict=True))
        values = np.frombuffer(data, dtype).reshape(dims)
        result[place] = values[tuple(slice(0, length) for length in result[place].shape)]
    return result


async def values(client: RestClient, path: str, dtype: str, shape: list[int]) -> np.ndarray:
    reply = await client("GET", f"{path}/value", accept=BINARY)
    return np.frombuffer(reply.body, dtype).reshape(shape)


TYPES = [
    ("H5T_STD_I8LE", "<i1", "Int8", -3),
    ("H5T_STD_U8BE", "<u1", "UInt8", 250),
    ("H5T_STD_I16BE", ">i2", "Int16", -300),
    ("H5T_STD_U32LE", "<u4", "UInt32", 2**32 - 1),
    ("H5T_STD_I64BE", ">i8", "Int64", -(2**63)),
    ("H5T_STD_U64LE", "<u8", "UInt64", 2**64 - 1),
    ("H5T_IEEE_F32LE", "<f4", "Float32", 0.1),
    ("H5T_IEEE_F64BE", ">f8", "Float64", float("nan")),
    ({"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"FALSE": 0, "TRUE": 1}}, "<i1", "Int8", True),
]


@pytest.mark.parametrize(("kind", "dtype", "name", "fill"), TYPES, ids=[one[2] + one[1] for one in TYPES])
@pytest.mark.parametrize(
    "filters", [[], ["shuffle", "deflate"], ["deflate", "fletcher32"], ["shuffle"]], ids=str
)
async def test_values_by_the_chunks_that_are_told(
    client: RestClient, tmp_path: Path, kind: Any, dtype: str, name: str, fill: Any, filters: list[str]
) -> None:
    layout = {"class": "H5D_CHUNKED", "dims": [64, 32]}
    path = await linked_dataset(client, "/d", [100, 70], kind, layout=layout, filters=filters, fillValue=fill)
    some = (np.arange(50 * 70) % 2).astype(dtype).reshape(50, 70)
    assert (await client("PUT", f"{path}/value", some.tobytes(), select="[0:50,0:70]")).status == 200
    expected = await values(client, path, dtype, [100, 70])
    for where in ("", path):
        (variable,) = variables(await document(client, where, base=f"{tmp_path}/")).values()
        assert etree.QName(variable).localname == name
        np.testing.assert_array_equal(read(variable), expected)


async def test_lower_bounds_between_chunks_are_at_0(client: RestClient, tmp_path: Path) -> None:
    """By their objects, and by the addresses of the domain's file."""
    body = {
        "type": INT,
        "shape": [10, 6],
        "maxdims": [0, 0],
        "lower": [-4, 3],
        "h5path": "/d",
        "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [4, 3], "enlarge": False}},
    }
    path = f"/datasets/{(await client('POST', '/datasets', body, implicit=1))['id']}"
    values = np.arange(60, dtype="<i4").reshape(10, 6)
    assert (await client("PUT", f"{path}/value", values.tobytes())).status == 200
    copy = tmp_path / "copy.h5"
    copy.write_bytes((await client("GET", f"/files{client.domain}", domain=None)).body)
    for asked in ({"base": f"{tmp_path}/"}, {"addresses": "file", "base": str(copy)}):
        for where in ("", path):
            (variable,) = variables(await document(client, where, **asked)).values()
            np.testing.assert_array_equal(read(variable), values)


ALIASES = {"/again": "/sparse", "/again.defined": "/whole", "/soft": "/g/chunked"}
"""Links of the domain to datasets that have another path."""


async def test_the_chunks_of_the_file(client: RestClient, tmp_path: Path) -> None:
    """A domain with a dataset of every kind; sparse ones are chunked in the stock file."""
    ids = await fill_domain(client)
    copy = tmp_path / "copy.h5"
    copy.write_bytes((await client("GET", f"/files{client.domain}", domain=None, layout="stock")).body)
    found = await document(client, addresses="file", base=str(copy))
    by_path = variables(found)
    assert set(by_path) == {
        "/again",
        "/again.defined",
        "/g/chunked",
        "/g/part",
        "/never",
        "/scalar",
        "/soft",
        "/sparse nothing",
        "/sparse",
        "/whole",
    }
    assert not found.xpath("//p:chunk[@href]", namespaces=NAMES)
    for path, variable in by_path.items():
        id = ids[ALIASES.get(path, path)]
        dtype = ">f8" if ALIASES.get(path, path) == "/whole" else "<i4"
        np.testing.assert_array_equal(
            read(variable), await values(client, f"/datasets/{id}", dtype, sizes(variable)), err_msg=path
        )
    told = {one.partition(":")[0] for one in left_out(found)}
    assert told == {
        "initial",
        "null",
        "points",
        "references",
        "sparse points",
        "sparse words",
        "structured words",
        "words",
    }
    structured = await document(client, addresses="file", layout="structured")
    assert "sparse" in {one.partition(":")[0] for one in left_out(structured)}
    assert structured.get(HREF) == f"{client.url}/files{client.domain}?layout=structured"


async def test_dimensions_and_attributes(client: RestClient, tmp_path: Path) -> None:
    reference = {"class": "H5T_VLEN", "base": {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}}
    time = await linked_dataset(client, "/time", [30], "H5T_IEEE_F64LE")
    await put_attribute(client, time, "CLASS", TEXT, "DIMENSION_SCALE")
    for path in ("/a", "/g/h/b", "/v1.5/c"):
        field = await linked_dataset(client, path, [30, 40], "H5T_IEEE_F32LE")
        await put_attribute(client, field, "DIMENSION_LIST", reference, [[time.strip("/")], []], shape=[2])
    await put_attribute(client, field, "units", TEXT, 'K & "C" <x>\n')
    await put_attribute(client, field, "range", "H5T_IEEE_F32LE", [[-1.5, float("inf")]], shape=[1, 2])
    await put_attribute(client, field, "count", "H5T_STD_U8LE", 7)
    await put_attribute(client, field, "half", "H5T_IEEE_F16LE", 0.5)
    await put_attribute(client, field, "bell", TEXT, "\x07")
    root = (await client("GET", "/"))["root"]
    await put_attribute(client, f"/groups/{root}", "title", TEXT, "größe")
    found = await document(client)
    by_path = variables(found)
    assert [dim.get("name") for dim in by_path["/a"].findall("d:Dim", NAMES)] == ["/time", "/a_dim_1"]
    assert [dim.get("name") for dim in by_path["/g/h/b"].findall("d:Dim", NAMES)] == ["/time", "/g/h/b_dim_1"]
    assert [dim.get("size") for dim in by_path["/v1.5/c"].findall("d:Dim", NAMES)] == [None, "40"]
    assert [sizes(one) for one in by_path.values()] == [[30, 40], [30], [30, 40], [30, 40]]
    told = {
        one.get("name"): (one.get("type"), [value.text for value in one])
        for one in by_path["/v1.5/c"].findall("d:Attribute", NAMES)
    }
    assert told["units"] == ("String", ['K & "C" <x>\n'])
    assert told["range"] == ("Float32", ["-1.5", "INF"])
    assert told["count"] == ("UInt8", ["7"])
    assert sorted(one.partition(":")[0] for one in told["hsparse_left_out"][1] if one) == [
        "attribute bell",
        "attribute half",
    ]
    assert found.xpath("d:Attribute[@name='title']/d:Value/text()", namespaces=NAMES) == ["größe"]


async def test_a_dataset_called_like_a_dimension(client: RestClient) -> None:
    await linked_dataset(client, "/x", [5, 6], INT)
    await linked_dataset(client, "/x_dim_0", [5, 5], INT)
    await linked_dataset(client, "/y", [5, 6], INT)
    await linked_dataset(client, "/y_dim_0", [7], INT)
    found = variables(await document(client))
    assert {path: sizes(one) for path, one in found.items()} == {
        "/x": [5, 6],
        "/x_dim_0": [5, 5],
        "/y": [5, 6],
        "/y_dim_0": [7],
    }


async def test_names_that_xml_cannot_have(client: RestClient) -> None:
    await linked_dataset(client, "/plain & <simple>", [3], INT)
    await linked_dataset(client, "/bad\x01", [3], INT)
    await linked_dataset(client, "/worse\x02/deep/d", [3], INT)
    for options in ({}, {"addresses": "file"}):
        found = await document(client, **options)
        assert list(variables(found)) == ["/plain & <simple>"]
        assert [one.partition(":")[0] for one in left_out(found)] == ["bad\\x01", "worse\\x02"]


async def test_groups_inside_groups(client: RestClient) -> None:
    for path in ("/b/x", "/a/c/y", "/a/b/z", "/a.b/w", "/a/d"):
        await linked_dataset(client, path, [3], INT)
    assert sorted(variables(await document(client))) == ["/a.b/w", "/a/b/z", "/a/c/y", "/a/d", "/b/x"]


@pytest.mark.parametrize(
    ("kind", "shape", "properties"),
    [
        (INT, [40], {"layout": sparse(10)}),
        (INT, [40], {"filters": ["lz4"]}),
        (INT, [40], {"initializer": ["arange"]}),
        (INT, [0], {}),
        ("H5T_IEEE_F16LE", [40], {}),
        (
            {"class": "H5T_STRING", "length": 4, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"},
            [4],
            {},
        ),
        ({"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": INT}]}, [4], {}),
    ],
    ids=["sparse", "lz4", "arange", "empty", "half", "fixed text", "compound"],
)
async def test_what_dmrpp_does_not_have(
    client: RestClient, kind: Any, shape: Any, properties: dict[str, Any]
) -> None:
    path = await linked_dataset(client, "/d", shape, kind, **properties)
    reply = await client("GET", f"{path}/map", format="dmrpp")
    assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
    found = await document(client)
    assert not variables(found)
    assert [one.partition(":")[0] for one in left_out(found)] == ["d"]


async def test_a_parser_of_dap4_finds_the_same(client: RestClient) -> None:
    dmr = pytest.importorskip("pydap.parsers.dmr", reason="pydap is not installed")
    await fill_domain(client)
    reply = await client("GET", "/map", format="dmrpp", addresses="file")
    found = dmr.dmr_to_dataset(reply.body.decode())
    assert found["/g/chunked"].shape == (40, 30)
    assert found["/g/chunked"].dtype == np.dtype("<i4")
    assert found["whole"].shape == (6,)
    assert found["whole"].dtype == np.dtype("<f8")


@pytest.mark.parametrize("name", ["air.nc", "air_groups.nc", "TestGroupData.nc4", "MOD13Q1.hdf"])
def test_the_schema_accepts_documents_of_opendaps_servers(name: str) -> None:
    """The schema is this project's own: OPeNDAP's is in no package. These were made by Hyrax."""
    pydap = pytest.importorskip("pydap", reason="pydap is not installed")
    path = Path(pydap.__path__[0]) / "tests" / "data" / "dmrs" / f"{name}.dmrpp"
    schema().assertValid(etree.parse(path))
