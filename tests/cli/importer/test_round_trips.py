"""Random domains exported as files and imported again: in both layouts, and in all revisions of structured chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import Unsupported
from hsparse.format.dataspace_message import FormatRevision
from tests.cli.importer.domain_picture import Difference, Picture, differences, picture_of
from tests.cli.importer.known_changes import KNOWN, is_refused
from tests.cli.importer.random_domain import DrawnDomain, domains, make_domain
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
