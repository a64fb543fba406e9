"""A bucket that HSDS wrote is served as it is, and HSDS serves what hsparse wrote: both ways, in both stores.

Run by `make interchange`: HSDS is installed from PyPI into an environment of its own under `.bench`.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from benchmarks.peers import hsds
from hsparse.testing.moto_server import make_bucket
from tests.interchange.content import CHAPTERS
from tests.interchange.journey import Leg, journey
from tests.interchange.place import Place

pytestmark = [pytest.mark.interchange, pytest.mark.timeout(900)]

BENCH = Path(__file__).parent.parent.parent / ".bench"
NUMBERS = itertools.count()
NOT_YET = {
    "variable": "values of variable length are not served yet",
    "arrays": "datasets of array types are not served yet",
}
"""Chapters that are known to fail, and why."""
ONE_WAY = {"shuffle"}
"""What HSDS stores unshuffled and reads as shuffled, so that itself it does not read back what it wrote."""
JOURNEYS = [
    (first, second, store, version)
    for version in ("1.0.2", "0.9.4")
    for store in ("directory", "bucket")
    for first, second in (("hsds", "hsparse"), ("hsparse", "hsds"))
    if version == "1.0.2" or store == "directory"
]


@pytest.fixture(scope="session")
def environments() -> dict[str, hsds.Environment]:
    """HSDS's environments by version, made when they are not there."""
    BENCH.mkdir(exist_ok=True)
    found = {version: hsds.environment(BENCH, version) for version in ("1.0.2", "0.9.4")}
    for environment in found.values():
        environment.install()
    return found


@pytest.fixture(scope="module", params=JOURNEYS, ids="-".join)
def legs(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    environments: dict[str, hsds.Environment],
) -> dict[str, Leg]:
    """The legs of one journey, by chapter."""
    first, second, store, version = request.param
    place = Place(tmp_path_factory.mktemp("place"), environments[version])
    if store == "bucket":
        endpoint = request.getfixturevalue("moto_endpoint")
        place = Place(place.work, place.environment, endpoint, f"interchange{next(NUMBERS)}")
        make_bucket(endpoint, place.bucket)
    chapters = [chapter for chapter in CHAPTERS if chapter not in ONE_WAY]
    return asyncio.run(journey(place, first, second, chapters))


@pytest.mark.parametrize(
    "chapter",
    [
        pytest.param(
            chapter,
            marks=[pytest.mark.xfail(strict=True, reason=NOT_YET[chapter])] if chapter in NOT_YET else [],
        )
        for chapter in CHAPTERS
        if chapter not in ONE_WAY
    ],
)
def test_both_serve_the_same(legs: dict[str, Leg], chapter: str) -> None:
    legs[chapter].check()
