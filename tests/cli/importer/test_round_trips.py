"""Files and random domains that go there and back: in both layouts, in all revisions; netCDF reads the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import Unsupported
from hsparse.format.dataspace_message import FormatRevision
from tests.cli.importer.conftest import Import, exported
from tests.cli.importer.domain_picture import KNOWN, Difference, Picture, differences, is_refused, picture_of
from tests.cli.importer.random_domain import DrawnDomain, domains, make_domain
from tests.clients.netcdf_files import NETCDF
from tests.support.endurance import repeats

REPORT = 50
"""Domains after which a long run tells how far it is."""
FORMS = {
    "stock": ("--layout", "stock"),
    **{one.value: ("--layout", "structured", "--revision", one.value) for one in FormatRevision},
}


@contextmanager
def domain(url: str, path: str) -> Iterator[Connection]:
    """Give a connection to a domain that is deleted afterwards."""
    with Connection(url, path) as connection:
        yield connection
        connection.json("DELETE", "/")


class RoundTrips:
    """Makes round trips, and keeps count of the known differences that they met."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.met: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.domains = 0

    def run(self, drawn: DrawnDomain) -> None:
        self.domains += 1
        with domain(self._url, f"/home/admin/original-{self.domains}.h5") as original:
            make_domain(original, drawn)
            before = picture_of(original)
            for form, flags in FORMS.items():
                wrong = self._trip(str(original.domain), before, form, flags)
                self.wrong += [f"{form}: {one}" for one in wrong]
                if wrong:
                    print("\n".join(map(str, wrong)), f"{form} of {drawn}", sep="\n")

    def figures(self) -> str:
        count = len(self.wrong)
        return f"{self.domains} domains, {len(FORMS)} round trips each, {count} unnamed differences"

    def _trip(self, original: str, before: Picture, form: str, flags: tuple[str, ...]) -> list[Difference]:
        file = self._folder / "trip.h5"
        if is_refused(before, form):
            with (
                Connection(self._url) as connection,
                pytest.raises(Unsupported, match="structured chunks cannot have"),
            ):
                connection.binary("GET", f"/files{original}", layout="structured", revision=form)
            self.met["refused"] += 1
            return []
        assert main(["export", original, str(file), "--endpoint", self._url, "--force", *flags]) == 0
        back = f"{original.removesuffix('.h5')}-{form}.h5"
        # 3: external links lead to files that are no domains
        assert main(["import", str(file), back, "--endpoint", self._url, "--quiet"]) in (0, 3)
        with domain(self._url, back) as copy:
            after = picture_of(copy)
        wrong = []
        for one in differences(before, after):
            known = next((known for known in KNOWN if known.explains(one, form, before)), None)
            if known is None:
                wrong.append(one)
            else:
                self.met[known.name] += 1
        return wrong


@pytest.mark.endurance
def test_round_trips(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    trips = RoundTrips(url, tmp_path)

    @settings(
        max_examples=request.config.getoption("round_trips") or repeats(12, short=3),
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
        database=None,
        derandomize=True,
    )
    @given(domains())
    def run(drawn: DrawnDomain) -> None:
        trips.run(drawn)
        if not trips.domains % REPORT:
            print(trips.figures())

    run()
    print(trips.figures())
    print("\n".join(f"{number:6} {name}" for name, number in trips.met.most_common()))
    assert not trips.wrong, "\n\n".join(trips.wrong[:20])


SHOW = """
import json, sys
import netCDF4

def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value

def show(group):
    variables = {}
    for name, one in group.variables.items():
        one.set_auto_maskandscale(False)
        attributes = {key: plain(one.getncattr(key)) for key in one.ncattrs()}
        variables[name] = [str(one.dtype), one.dimensions, attributes, plain(one[...])]
    return {
        "dimensions": {name: [len(one), one.isunlimited()] for name, one in group.dimensions.items()},
        "attributes": {key: plain(group.getncattr(key)) for key in group.ncattrs()},
        "variables": variables,
        "groups": {name: show(one) for name, one in group.groups.items()},
    }

for path in sys.argv[1:]:
    with netCDF4.Dataset(path) as file:
        print(json.dumps(show(file), default=repr))
"""


def shown(*paths: Path) -> list[Any]:
    """Return what netCDF4 reads of files.

    It does so in a process of its own: it has another libhdf5, and changes where h5py's looks for filters.
    """
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *map(str, paths)], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("topic", NETCDF)
def test_netcdf_reads_the_same(imported: Import, tmp_path: Path, topic: str) -> None:
    NETCDF[topic](tmp_path / "original.nc")
    connection = imported(tmp_path / "original.nc")
    before, after = shown(tmp_path / "original.nc", exported(connection, tmp_path / "back.nc"))
    assert before["variables"] or before["groups"]
    assert after == before
