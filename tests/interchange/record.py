"""Records a small domain as HSDS stores it: `python -m tests.interchange.record 1.0.2` writes `tests/data/hsds/`."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import hsds
from tests.interchange.content import write_small
from tests.interchange.journey import make_home
from tests.interchange.place import Place

DATA = Path(__file__).parent.parent / "data" / "hsds"
BENCH = Path(__file__).parent.parent.parent / ".bench"
DOMAIN = "small.h5"


async def record(version: str) -> None:
    """Write the objects of a domain made by HSDS `version`, by key in base64."""
    environment = hsds.environment(BENCH, version)
    environment.install()
    with tempfile.TemporaryDirectory() as work:
        place = Place(Path(work), environment)
        async with place.serve("hsds") as peer:
            await asyncio.to_thread(make_home, peer)
            await asyncio.to_thread(write_small, peer, DOMAIN)
            await asyncio.to_thread(peer.flush, DOMAIN)
        objects = {
            str(path.relative_to(place.store)): base64.b64encode(path.read_bytes()).decode()
            for path in sorted(place.store.rglob("*"))
            if path.is_file()
        }
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / f"{version}.json").write_text(json.dumps(objects, indent=0) + "\n")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
