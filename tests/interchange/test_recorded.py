"""A small domain as HSDS stored it, recorded by `tests.interchange.record`: served as it is, and changed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.interchange.content import SMALL, change_small, numbers, small_data
from tests.interchange.place import Peer
from tests.interchange.record import DATA, DOMAIN
from tests.interchange.snapshot import snapshot
from tests.support.server_process import server_process


@pytest.fixture(params=sorted(path.stem for path in DATA.glob("*.json")))
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    for key, text in json.loads((DATA / f"{request.param}.json").read_text()).items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
    with server_process("--root", str(tmp_path), "--no-fsync", "--user", "bench") as server:
        yield Peer("hsparse", server.url)
        assert server.stop() == 0


def test_it_is_served_and_changed(peer: Peer) -> None:
    with peer.open(DOMAIN, "r") as file:
        assert set(file) == {*SMALL, "soft", "away", "record", "g", "grows", "unwritten"}
        for title in SMALL:
            np.testing.assert_array_equal(file[title][...], small_data())
        np.testing.assert_array_equal(file.attrs["numbers"], [np.nan, 1.5])
        assert file["g"].attrs["note"] == "hé"
        assert file.get("soft", getlink=True).path == "/bare"
        assert file.get("away", getlink=True).filename == "/home/bench/other.h5"
        assert file["record"].dtype == np.dtype([("n", "<i4")])
        np.testing.assert_array_equal(file["grows"][...], [*numbers("<i4", 5), -1, -1, -1, -1])
        assert file["grows"].maxshape == (None,)
        np.testing.assert_array_equal(file["unwritten"][...], [7, 7, 7])
    change_small(peer, DOMAIN)
    changed = small_data()
    changed[3:5] = -9
    with peer.open(DOMAIN, "r") as file:
        for title in SMALL:
            np.testing.assert_array_equal(file[title][...], changed)
    snapshot(peer, DOMAIN)  # nothing of it is refused, by h5pyd or by REST
