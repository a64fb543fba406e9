"""Virtual datasets over dense ones: every selection against numpy; sources that are away, rights, loops, merging."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.format.plan.virtual_plan import ordered
from hsparse.hdf5.format.parse.mapping_json import mapping_json, mapping_of
from hsparse.hdf5.format.parse.virtual_mapping import VirtualMapping
from hsparse.hdf5.virtual_dataset.merging import merged_mappings
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import Message
from hsparse.wire.record_message import ReadObjects
from tests.sn.value_client import BINARY, create, read, value_client
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

FILL = -7
SELECTS = [
    "[:,:]", "[2:9,3:7]", "[0:12:3,1:8:2]", "[5,:]", "[:,3]", "[[0,3,11],:]", "[4:6,[7,0,2]]", "[11,7]", "[6:6,:]",
]  # fmt: skip


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(settings=ServiceSettings(max_request_size=2_000_000), nodes=2) as client:
        yield client


def slab(start: list[int], count: list[int], **more: list[Any]) -> dict[str, Any]:
    return {"class": "H5S_SEL_HYPERSLABS", "start": start, "count": count, **more}


def box(start: list[int], stop: list[int]) -> dict[str, Any]:
    return slab(start, [1] * len(start), block=[b - a for a, b in zip(start, stop, strict=True)])


def maps(dataset: str, virtual: Any, source: Any = None, file: str = ".") -> dict[str, Any]:
    return {"file": file, "dataset": dataset, "source": source, "virtual": virtual}


async def stored(client: RestClient, name: str, values: np.ndarray, **properties: Any) -> str:
    """Create a dataset with values at a path of the root group; return its path in the API."""
    root = (await client("GET", "/"))["root"]
    kind = {"<i4": "H5T_STD_I32LE", "<i8": "H5T_STD_I64LE", "<f8": "H5T_IEEE_F64LE"}[values.dtype.str]
    path = await create(client, list(values.shape), kind, **properties)
    put = await client("PUT", f"{path}/value", values.tobytes(), headers={"Content-Type": BINARY})
    assert put.status == 200, put.body
    await link(client, root, name, path)
    return path


async def link(client: RestClient, root: str, name: str, path: str) -> None:
    made = await client("PUT", f"/groups/{root}/links/{name}", {"id": path.removeprefix("/datasets/")})
    assert made.status == 201, made.body


async def virtual(
    client: RestClient,
    shape: list[int],
    *mappings: dict[str, Any],
    name: str = "",
    maxdims: Any = None,
    **layout: Any,
) -> str:
    made = {"class": "H5D_VIRTUAL", "mappings": list(mappings), **layout}
    path = await create(client, shape, "H5T_STD_I32LE", layout=made, fillValue=FILL, maxdims=maxdims)
    if name:
        await link(client, (await client("GET", "/"))["root"], name, path)
    return path


async def growing(client: RestClient, **options: Any) -> str:
    """Create a virtual dataset of two columns that grows with its source, `x`."""
    ends = [slab([0, 0], ["H5S_UNLIMITED", 1], block=[1, 2])] * 2
    return await virtual(client, [0, 2], maps("x", *ends), maxdims=[0, 2], **options)


async def append(client: RestClient, path: str) -> None:
    """Append a row to a dataset of two columns and three rows."""
    appended = await client("PUT", f"{path}/value", {"append": 1, "value": [[6, 7]]})
    assert appended.status == 200, appended.body


def numbers(*shape: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + int(np.prod(shape)), dtype="<i4").reshape(shape)


@pytest.fixture
async def mosaic(client: RestClient) -> tuple[str, np.ndarray]:
    """A virtual dataset over two sources: a box, strides, a transposed row, what overlaps, and what nothing maps."""
    one, two = numbers(6, 8), numbers(30, first=1000)
    await stored(client, "one", one, layout={"class": "H5D_CHUNKED", "dims": [2, 3]})
    await stored(client, "two", two)
    model = np.full((12, 8), FILL, "<i4")
    model[1:5, 2:8] = one[2:6, 1:7]
    model[6:12:2, 0:4] = two[:12].reshape(3, 4)
    model[7, 4:8] = one[0:4, 5]
    model[4, 0:5] = two[20:25]
    mappings = [
        maps("/one", box([1, 2], [5, 8]), box([2, 1], [6, 7])),
        maps("two", slab([6, 0], [3, 4], stride=[2, 1]), box([0], [12])),
        maps("one", slab([7, 4], [1, 4]), slab([0, 5], [4, 1])),
        maps("two", slab([4, 0], [1, 5]), slab([20], [5])),
    ]
    return await virtual(client, [12, 8], *mappings), model


@pytest.mark.parametrize("dims", [None, [5, 3]])
async def test_it_has_the_elements_of_its_sources(
    client: RestClient, mosaic: tuple[str, np.ndarray], dims: Any
) -> None:
    path, model = mosaic
    if dims:
        layout = (await client("GET", path))["creationProperties"]["layout"]
        path = await virtual(client, [12, 8], *layout["mappings"], dims=dims)
    for select in SELECTS:
        expected = eval(f"model{select}", {"model": model})
        found = await read(client, path, "<i4", expected.shape, select=select)
        assert np.array_equal(found, expected), select
    points = [[1, 2], [11, 7], [4, 1], [7, 4], [7, 4], [0, 0]]
    reply = await client("POST", f"{path}/value", {"points": points})
    assert reply["value"] == [int(model[tuple(point)]) for point in points]


async def test_it_is_queried_and_reduced(client: RestClient, mosaic: tuple[str, np.ndarray]) -> None:
    path, model = mosaic
    found = await client("GET", f"{path}/value", query="_>1005", select="[2:,:]")
    assert found.status == 200, found.body
    places = np.argwhere(model > 1005)
    assert found["index"] == places[places[:, 0] >= 2].tolist()
    found = await client("GET", f"{path}/value", query=f"_=={FILL}")
    assert found["index"] == np.argwhere(model == FILL).tolist()
    for axis in ("", "0", "1"):
        reduced = await client(
            "GET", f"{path}/reduce", op="sum,max,count", **({"axis": axis} if axis else {})
        )
        expected = model.sum(axis=int(axis) if axis else None)
        assert np.array_equal(reduced["value"]["sum"], expected), reduced.body


async def test_it_is_no_store_of_its_own(client: RestClient, mosaic: tuple[str, np.ndarray]) -> None:
    """What would change it, or asks for its chunks, is refused with the reason."""
    path, _ = mosaic
    refused = [
        await client("PUT", f"{path}/value", {"value": [[1] * 8] * 12}),
        await client("PUT", f"{path}/value", {"value": 1}, query="_>1"),
        await client("PUT", f"{path}/value", {"append": 1, "value": [[1] * 8]}),
        await client("PUT", f"{path}/shape", {"shape": [13, 8]}),
        await client("PUT", f"{path}/chunks/0_0/value", b"1234"),
        await client("POST", f"{path}/erase", {"select": "[0,0]"}),
    ]
    assert [one.status for one in refused] == [400] * 6, [one.body for one in refused]
    told = [one["error"]["message"] for one in refused]
    assert all("virtual" in one for one in told[:1] + told[3:5]), told
    chunks = await client("GET", f"{path}/chunks")
    assert "is virtual and has no chunks" in chunks["error"]["message"]
    layout = (await client("GET", path))["creationProperties"]["layout"]
    assert layout["class"] == "H5D_VIRTUAL"
    assert len(layout["mappings"]) == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mappings": {}}, "mappings, a list"),
        ({"missing": "zero"}, "missing must be error or fill"),
        ({"depth": 1}, "no 'depth'"),
        ({"flags": ["H5D_VL_DATA"]}, "The flag of H5D_VIRTUAL"),
        ({"mappings": [{"dataset": "x", "more": 1}]}, "Mapping 0"),
        ({"mappings": [{"file": ".", "virtual": box([0, 0], [1, 1])}]}, "dataset of mapping 0"),
        ({"mappings": [maps("x", box([0], [1]))]}, "of 1 dimensions, not 2"),
        ({"mappings": [maps("x", slab([0, 0], [1, 0]))]}, "invalid in dimension 1"),
        ({"mappings": [maps("x", slab([0, 0], [2, 1], block=[3, 1]))]}, "overlap in dimension 0"),
        ({"mappings": [maps("x", slab([0, 0], ["H5S_UNLIMITED", 1]), box([0], [1]))]}, "one unlimited selection"),
        ({"mappings": [maps("x%b", box([0, 0], [1, 1]))]}, "by block (%b)"),
        ({"mappings": [maps("x", slab([0, 0], ["H5S_UNLIMITED", 1]), slab([0], ["H5S_UNLIMITED"]))]}, "maxdims"),
        ({"mappings": [maps("x", {"class": "H5S_SEL_POINTS", "coordinates": [[0], [1, 2]]})]}, "equal length"),
    ],
)  # fmt: skip
async def test_a_layout_that_is_wrong_is_refused(client: RestClient, change: Any, told: str) -> None:
    body = {"type": "H5T_STD_I32LE", "shape": [4, 4]}
    layout = {"class": "H5D_VIRTUAL", "mappings": [], **change}
    refused = await client("POST", "/datasets", body | {"creationProperties": {"layout": layout}})
    assert refused.status == 400
    assert told in refused["error"]["message"]


async def test_sources_are_in_other_domains(client: RestClient) -> None:
    """By an absolute name, beside the domain, and through soft and external links."""
    here = client.domain
    for name in ("/home/admin/other.h5", "/home/admin/sub.h5"):
        client.domain = name
        assert (await client("PUT", "/", {})).status == 201
        await stored(client, "x", numbers(4, first=100 * len(name)))
    root = (await client("GET", "/"))["root"]
    await client("PUT", f"/groups/{root}/links/soft", {"h5path": "/x"})
    await client("PUT", f"/groups/{root}/links/out", {"h5path": "/x", "file": "other.h5"})
    client.domain = here
    names = [("/home/admin/other.h5", "x"), ("sub.h5", "/x"), ("sub.h5", "soft"), ("sub.h5", "out")]
    mappings = [maps(path, box([n, 0], [n + 1, 4]), None, file) for n, (file, path) in enumerate(names)]
    path = await virtual(client, [4, 4], *mappings)
    found = await read(client, path, "<i4", (4, 4))
    other, sub = numbers(4, first=2000), numbers(4, first=1800)
    assert np.array_equal(found, [other, sub, sub, other])


async def test_a_source_that_is_away_is_named(client: RestClient) -> None:
    await stored(client, "there", numbers(4))
    names = [("there", "."), ("gone", "."), ("x", "none.h5")]
    rows = [maps(name, box([n, 0], [n + 1, 4]), file=file) for n, (name, file) in enumerate(names)]
    path = await virtual(client, [3, 4], *rows)
    for row, told in ((1, "gone in /home/admin/values.h5"), (2, "x in none.h5")):
        away = await client("GET", f"{path}/value", select=f"[{row},:]")
        assert away.status == 404
        assert told in away["error"]["message"]
    assert (await client("GET", f"{path}/value", select="[0,:]"))["value"] == [[0, 1, 2, 3]]
    path = await virtual(client, [3, 4], *rows, missing="fill")
    assert np.array_equal(await read(client, path, "<i4", (3, 4)), [range(4), [FILL] * 4, [FILL] * 4])


async def test_a_source_that_does_not_fit_is_named(client: RestClient) -> None:
    await stored(client, "x", numbers(4))
    await create(client, [2], "H5T_STD_I32LE")
    root = (await client("GET", "/"))["root"]
    group = await client("POST", "/groups", {"link": {"id": root, "name": "g"}})
    assert group.status == 201
    cases = [
        (maps("x", box([0], [6]), box([0], [6])), "ends at 4"),
        (maps("x", box([0], [3])), "3 elements are mapped to 4"),
        (maps("g", box([0], [3])), "not a dataset"),
        (maps("x", box([0], [9])), "Mapping 0 does not fit"),
    ]
    for mapping, told in cases:
        path = await virtual(client, [6], mapping)
        reply = await client("GET", f"{path}/value")
        assert reply.status == 409, reply.body
        assert told in reply["error"]["message"]


async def test_loops_and_long_chains_are_refused(client: RestClient) -> None:
    everything = box([0], [4])
    await virtual(client, [4], maps("b", everything), name="a")
    loop = await virtual(client, [4], maps("a", everything), name="b")
    reply = await client("GET", f"{loop}/value")
    assert reply.status == 400
    assert "a in /home/admin/values.h5 -> b in /home/admin/values.h5." in reply["error"]["message"]
    await stored(client, "v0", numbers(4))
    for number in range(1, 19):
        path = await virtual(client, [4], maps(f"v{number - 1}", everything), name=f"v{number}")
        reply = await client("GET", f"{path}/value")
        if number <= 16:
            assert reply["value"] == [0, 1, 2, 3], reply.body
    assert reply.status == 400
    assert "nested 16 levels deep" in reply["error"]["message"]


async def test_elements_are_converted(client: RestClient) -> None:
    await stored(client, "long", np.array([1, -1, 2**40, -(2**40)], "<i8"))
    await stored(client, "real", np.array([1.7, -1.7, np.inf, 1e30]))
    path = await virtual(client, [2, 4], maps("long", box([0, 0], [1, 4])), maps("real", box([1, 0], [2, 4])))
    most, least = 2**31 - 1, -(2**31)
    assert np.array_equal(
        await read(client, path, "<i4", (2, 4)), [[1, -1, most, least], [1, -1, most, most]]
    )


async def test_it_grows_with_its_sources(client: RestClient) -> None:
    source = await stored(client, "x", numbers(3, 2), maxdims=[0, 2])
    path = await growing(client)
    assert (await client("GET", path))["shape"]["dims"] == [3, 2]
    assert np.array_equal(await read(client, path, "<i4", (3, 2)), numbers(3, 2))
    await append(client, source)
    assert (await client("GET", f"{path}/shape"))["shape"]["dims"] == [4, 2]
    assert np.array_equal(await read(client, path, "<i4", (4, 2)), numbers(4, 2))


async def test_one_that_grows_is_not_appended_to(client: RestClient) -> None:
    await stored(client, "x", numbers(3, 2), maxdims=[0, 2])
    for flags in ({}, {"flags": ["H5D_SPARSE_DATA"]}):
        path = await growing(client, **flags)
        for body in ({"append": 1, "value": [[6, 7]]}, {"points": [[0, 0]], "value": [1]}):
            refused = await client("PUT", f"{path}/value", body)
            assert refused.status == 400
            assert "virtual" in refused["error"]["message"]
        assert (await client("GET", path))["shape"]["dims"] == [3, 2]


async def test_a_pattern_names_a_source_for_each_block(client: RestClient) -> None:
    for number in range(3):
        await stored(client, f"part{number}%", numbers(2, 3, first=6 * number))
    whole = slab([0, 0], ["H5S_UNLIMITED", 1], stride=[2, 3], block=[2, 3])
    path = await virtual(client, [0, 3], maps("part%b%%", whole), maxdims=[0, 3])
    assert np.array_equal(await read(client, path, "<i4", (6, 3)), numbers(6, 3))
    await stored(client, "part3%", numbers(2, 3, first=18))
    assert np.array_equal(await read(client, path, "<i4", (8, 3)), numbers(8, 3))


@asynccontextmanager
async def neighbours(fill: Callable[[RestClient], Awaitable[object]]) -> AsyncIterator[RestClient]:
    """A client at Ann's domain, as an administrator; she and Bob have one each, filled, and no right to the other's."""
    users = [Principal("ann"), Principal("bob"), Principal("admin", admin=True)]
    async with RestClient(MemoryNode(SystemClock()), SystemClock(), *users) as client:
        for name in ("ann", "bob"):
            client.user, client.domain = name, f"/home/{name}/a.h5"
            assert (await client("PUT", "/", {})).status == 201
            await fill(client)
        client.user, client.domain = "admin", "/home/ann/a.h5"
        yield client


async def test_the_rights_are_those_of_the_reader() -> None:
    """Who may read the dataset, and not a source, gets the name of the source's domain, never fill values."""
    async with neighbours(lambda client: stored(client, "x", numbers(4))) as client:
        files = [".", "/home/bob/a.h5"]
        rows = [maps("x", box([n, 0], [n + 1, 4]), file=file) for n, file in enumerate(files)]
        path = await virtual(client, [2, 4], *rows, missing="fill")
        assert (await client("GET", f"{path}/value"))["value"] == [[0, 1, 2, 3]] * 2
        client.user = "ann"
        assert (await client("GET", f"{path}/value", select="[0,:]")).status == 200
        refused = await client("GET", f"{path}/value")
        assert refused.status == 403
        assert refused["error"]["message"] == "ann does not have the right read in /home/bob/a.h5."


class CountingNode(DataService):
    """Counts the messages that read records."""

    reads = 0

    async def send(self, message: Message[Any]) -> Any:
        self.reads += isinstance(message, ReadObjects)
        return await super().send(message)


async def test_a_read_costs_what_it_touches() -> None:
    """Of 32 modules, mapped frame by frame, a frame takes one read of the store for each; nothing is copied.

    Its owner is asked for the records of all at once.
    """
    store = CountingStore(MemoryStore())
    settings = ServiceSettings(max_request_size=20_000_000)
    layout = {"class": "H5D_CHUNKED", "dims": [1, 4, 5], "enlarge": False}
    modules = [numbers(100, 4, 5, first=10_000 * m) for m in range(32)]
    async with value_client(store, settings) as client:
        for number, data in enumerate(modules):
            await stored(client, f"m{number}", data, layout=layout)
        mappings = [
            maps(f"m{m}", box([k, m, 0, 0], [k + 1, m + 1, 4, 5]), box([k, 0, 0], [k + 1, 4, 5]))
            for k in range(100)
            for m in range(32)
        ]
        store.reset()
        path = await virtual(client, [100, 32, 4, 5], *mappings)
        assert store.puts == 1
        assert len((await client("GET", path))["creationProperties"]["layout"]["mappings"]) == 32
    node = CountingNode(store, SystemClock(), id="dn-001")
    users = (Principal("admin", admin=True),)
    async with RestClient(node, SystemClock(), *users, settings=settings) as again:
        again.domain = client.domain
        store.reset()
        for frame in (7, 93):
            found = await read(again, path, "<i4", (1, 32, 4, 5), select=f"[{frame},:,:,:]")
            assert np.array_equal(found[0], [data[frame] for data in modules])
        chunks, records = 2 * 32, 32 + 3  # those of the sources, the dataset, its domain and root group
        assert store.gets <= chunks + records
        assert store.puts == 0
        assert node.reads <= 2 * 4  # of the domain, the dataset, the root group, and all sources


EXTENT, SOURCE = (24, 6, 5), (30, 10, 5)


def spans_slab(*spans: tuple[int, int]) -> dict[str, Any]:
    """Return the hyperslab of a start and a length in each dimension."""
    return {"class": "H5S_SEL_HYPERSLABS", "start": [a for a, _ in spans], "block": [n for _, n in spans],
            "count": [1] * len(spans)}  # fmt: skip


def mapping(file: str, virtual: dict[str, Any], source: dict[str, Any]) -> VirtualMapping:
    return mapping_of({"file": file, "dataset": "x", "virtual": virtual, "source": source})


def meaning(mappings: list[VirtualMapping]) -> dict[tuple[int, ...], tuple[Any, ...]]:
    """Return which element of which source each element is."""
    found: dict[tuple[int, ...], tuple[Any, ...]] = {}
    for one in mappings:
        virtual, source = ordered(one.virtual, EXTENT), ordered(one.source, SOURCE)
        assert virtual.size == source.size
        numbers = np.arange(virtual.size)
        to, of = (np.stack(some.coords(numbers), 1).tolist() for some in (virtual, source))
        found |= {tuple(a): (one.file, *b) for a, b in zip(to, of, strict=True)}
    return found


def frames(order: list[tuple[int, int]]) -> list[VirtualMapping]:
    return [
        mapping(f"m{m}", spans_slab((k, 1), (m, 1), (0, 5)), spans_slab((k, 1), (2, 1), (0, 5)))
        for k, m in order
    ]


CASES = {
    "module by module": (frames([(k, m) for m, k in product(range(6), range(20))]), 6),
    "frame by frame": (frames(list(product(range(20), range(6)))), 6),
    "every third frame": (frames([(k, m) for m, k in product(range(2), range(0, 24, 3))]), 2),
    "some frames are missing": (frames([(k, 1) for k in (*range(9), *range(12, 22))]), 2),
    "blocks of frames": (
        [
            mapping("a", spans_slab((2 * k, 2), (0, 6), (0, 5)), spans_slab((3 * k, 2), (1, 6), (0, 5)))
            for k in range(9)
        ],
        1,
    ),
    "along other dimensions": (
        [
            mapping("a", spans_slab((k, 1), (0, 1), (0, 5)), spans_slab((0, 1), (k, 1), (0, 5)))
            for k in range(10)
        ],
        1,
    ),
    "turned": (
        [
            mapping("a", spans_slab((k, 1), (0, 5), (0, 1)), spans_slab((0, 5), (0, 1), (k % 5, 1)))
            for k in range(15)
        ],
        15,
    ),
    "what overlaps": (frames([(k, 0) for k in range(10)] + [(k, 0) for k in range(5, 15)]), 20),
    "backwards": (frames([(k, 0) for k in range(12, 0, -1)]), 12),
}


@pytest.mark.parametrize("case", CASES)
def test_it_means_the_same(case: str) -> None:
    mappings, count = CASES[case]
    found = merged_mappings(mappings)
    assert meaning(found) == meaning(mappings)
    assert len(found) == count
    assert [mapping_of(mapping_json(one)) for one in found] == found
