"""A bucket that HSDS wrote is served as it is, and HSDS serves what hsparse wrote: both ways, in both stores.

Run by `make interchange`: HSDS is installed from PyPI into an environment of its own under `.bench`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import hsds
from tests.interchange.content import CHAPTERS
from tests.interchange.journey import Leg, journey, make_home
from tests.interchange.place import HOME, Peer, Place
from tests.support.s3_servers import make_bucket

pytestmark = [pytest.mark.interchange, pytest.mark.timeout(900)]

BENCH = Path(__file__).parent.parent.parent / ".bench"
NUMBERS = itertools.count()
ONE_WAY = {"shuffle"}
"""What HSDS stores unshuffled and reads as shuffled, so that itself it does not read back what it wrote."""
BY_REST = ("small", "filters", "no filters", "folders")
"""Chapters that h5pyd has no part in creating: 1.0.0 cannot create objects in HSDS 0.9.4, nor see its attributes."""
IN_A_BUCKET = ("small", "spaces", "attributes", "links", "folders")
"""Chapters that go through a bucket too, in which HSDS takes half a second to create an object."""
JOURNEYS = {
    f"{first} {version}, {store}": (first, store, version)
    for first in ("hsds", "hsparse")
    for store, version in (("directory", "1.0.2"), ("bucket", "1.0.2"), ("directory", "0.9.4"))
}


@pytest.fixture(scope="session")
def environments() -> dict[str, hsds.Environment]:
    """HSDS's environments by version, made when they are not there."""
    BENCH.mkdir(exist_ok=True)
    found = {version: hsds.environment(BENCH, version) for version in ("1.0.2", "0.9.4")}
    for environment in found.values():
        environment.install()
    return found


@pytest.fixture(scope="module", params=JOURNEYS.values(), ids=JOURNEYS.keys())
def legs(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    environments: dict[str, hsds.Environment],
) -> dict[str, Leg]:
    """The legs of one journey, by chapter."""
    first, store, version = request.param
    second = "hsparse" if first == "hsds" else "hsds"
    place = Place(tmp_path_factory.mktemp("place"), environments[version])
    if store == "bucket":
        endpoint = request.getfixturevalue("moto_endpoint")
        place = Place(place.work, place.environment, endpoint, f"interchange{next(NUMBERS)}")
        make_bucket(endpoint, place.bucket)
    chapters: Iterable[str] = [name for name in CHAPTERS if name not in ONE_WAY]
    if version == "0.9.4":
        chapters = BY_REST
    elif store == "bucket":
        chapters = IN_A_BUCKET
    return asyncio.run(journey(place, first, second, chapters, by_h5pyd=version != "0.9.4"))


@pytest.mark.parametrize("chapter", [chapter for chapter in CHAPTERS if chapter not in ONE_WAY])
def test_both_serve_the_same(legs: dict[str, Leg], chapter: str) -> None:
    if chapter not in legs:
        pytest.skip("not in this journey: see BY_REST and IN_A_BUCKET")
    legs[chapter].check()


async def test_sparse_datasets_leave_the_rest_to_hsds(
    tmp_path: Path, environments: dict[str, hsds.Environment]
) -> None:
    place = Place(tmp_path, environments["1.0.2"])
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [10, 10], "flags": ["H5D_SPARSE_DATA"]}
    path = HOME + "mixed"

    def write(peer: Peer) -> str:
        make_home(peer)
        root = peer.send("PUT", "/", path, {})["root"]
        body = {
            "type": "H5T_STD_I32LE",
            "shape": [40, 40],
            "creationProperties": {"layout": layout, "fillValue": -1},
            "link": {"id": root, "name": "sparse"},
        }
        sparse: str = peer.send("POST", "/datasets", path, body)["id"]
        peer.send(
            "PUT", f"/datasets/{sparse}/value", path, {"select": "[3:5,3:5]", "value": [[1, 2], [3, 4]]}
        )
        with peer.open("mixed", "a") as file:
            file.create_dataset("dense", data=np.arange(5))
        return sparse

    def look(peer: Peer, sparse: str) -> None:
        with peer.open("mixed", "r") as file:
            assert set(file) == {"sparse", "dense"}
            np.testing.assert_array_equal(file["dense"][...], np.arange(5))
            assert (file["sparse"].shape, file["sparse"].dtype) == ((40, 40), np.dtype("<i4"))
        record = peer.send("GET", f"/datasets/{sparse}", path)
        assert record["creationProperties"]["layout"] == layout
        with pytest.raises(RuntimeError, match="500"):
            peer.send("GET", f"/datasets/{sparse}/value", path)
        listed = peer.send("GET", "/domains", "/")["domains"]
        assert [one["name"] for one in listed] == ["/home"], "hsparse's own folder is no domain"

    async with place.serve("hsparse") as peer:
        sparse = await asyncio.to_thread(write, peer)
    async with place.serve("hsds") as peer:
        await asyncio.to_thread(look, peer, sparse)
    async with place.serve("hsparse") as peer:
        found = await asyncio.to_thread(
            peer.send, "GET", f"/datasets/{sparse}/value", path, select="[3:5,3:6]"
        )
        assert found["value"] == [[1, 2, -1], [3, 4, -1]]


async def test_hsds_serves_a_domain_beside_its_snapshots_and_refuses_a_clone(
    tmp_path: Path, environments: dict[str, hsds.Environment]
) -> None:
    place = Place(tmp_path, environments["1.0.2"])
    domain, clone = f"{HOME}past", f"{HOME}clone"
    virtual = {"class": "H5D_VIRTUAL", "mappings": [{"dataset": "/y"}]}
    others = {"virtual": {"creationProperties": {"layout": virtual}}, "signed": {"lower": [-4]}}
    ids = []
    async with place.serve("hsparse") as peer:
        await asyncio.to_thread(make_home, peer)
        with peer.open("past", "w") as file:
            file.create_dataset("x", data=np.arange(100), chunks=(10,), maxshape=(None,))
        peer.send("POST", "/snapshots", domain, {})
        with peer.open("past", "r+") as file:
            file["x"][5:25] = 7
            file["x"].resize((120,))
            file.create_dataset("y", data=np.arange(5))
        for more in others.values():
            body = {"type": "H5T_STD_I64LE", "shape": [5], **more}
            ids.append(peer.send("POST", "/datasets", domain, body)["id"])
        peer.send("POST", "/clones", domain, {"target": clone, "snapshot": 1})
        with peer.open("clone", "r+") as file:
            file["x"][0] = 9
    async with place.serve("hsds") as peer:
        with peer.open("past", "r") as file:
            assert set(file) == {"x", "y"}
            expected = np.zeros(120, int)
            expected[:100] = np.arange(100)
            expected[5:25] = 7
            np.testing.assert_array_equal(file["x"][:], expected)
        for id in ids:
            with pytest.raises(RuntimeError, match="500"):
                peer.send("GET", f"/datasets/{id}/value", domain)
        peer.send("PUT", "/", domain, {"rescan": 1})
        counts = peer.send("GET", "/", domain, verbose=1)
        assert [counts[f"num_{kind}"] for kind in ("groups", "datasets", "chunks")] == [1, 4, 2]
        root = peer.send("GET", "/", clone)["root"]
        with pytest.raises(RuntimeError, match="500"):
            peer.send("GET", f"/groups/{root}/links", clone)
