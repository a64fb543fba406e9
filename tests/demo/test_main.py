from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from demo import __main__ as demo
from demo.cells import FILE, read_csr
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.config import load_settings

SMALL = ["--frames", "4", "--every", "3"]


def test_it_checks_all_it_loads_and_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "kept"
    assert demo.main([*SMALL, "--keep", str(root)]) == 0
    told = capsys.readouterr().out
    assert "all right" in told
    assert "wrong" not in told
    for name in ("/raw.X", "rest of the file", "/detector/found", "/detector/full", "bytes"):
        assert name in told
    with embedded_server(load_settings(root=root, port=0, fsync=False)) as url, h5py.File(FILE) as file:
        with Connection(url, demo.CELLS_DOMAIN) as connection:
            kept = SparseDataset.open(connection, "/raw.X").read_dense()
            record = connection.json("GET", "/datasets/", h5path="/obs")
            obs = connection.binary("GET", f"/datasets/{record['id']}/value")
            assert connection.json("GET", "/groups/", h5path="/uns/louvain/params")["id"]
        with Connection(url, demo.DETECTOR_DOMAIN) as connection:
            assert SparseDataset.open(connection, "/detector/full").count("[:,0,0]") == 2
        assert obs == file["obs"][()].tobytes()
        wanted = read_csr(file["raw.X"]).toarray()
        names = [name.decode() for name in file["raw.var"]["index"]]
    wanted[:, [name.startswith(("RPL", "RPS")) for name in names]] = 0
    assert np.array_equal(kept, wanted)


def one_more(count: int) -> int:
    return count + 1


def one_less(coords: np.ndarray) -> np.ndarray:
    return coords[:-1]


def moved(coords: np.ndarray) -> np.ndarray:
    return coords ^ np.uint64(1)


def last_value_changed(elements: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    values = elements[1].copy()
    values[-1:] += 1
    return elements[0], values


def last_place_changed(elements: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    coords = elements[0].copy()
    coords[-1:, -1] ^= 1
    return coords, elements[1]


def changed(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[-1] += 1
    return array


@pytest.mark.parametrize(
    ("method", "spoil", "named"),
    [
        ("count", one_more, "elements are defined: the answer is 25004, not 25003"),
        ("defined", one_less, "where they are: how many: the answer is 25002, not 25003"),
        ("defined", moved, "where they are: the answer at"),
        ("read", last_value_changed, "elements read back, places and values: values: the answer at [174399]"),
        ("read", last_place_changed, "elements read back, places and values: places"),
        ("read_dense", changed, "reads 0 in between: the answer at [99, 764] is 1.0, not 0.0"),
    ],
)
def test_a_wrong_answer_is_named_and_fails(
    method: str,
    spoil: Callable[[Any], Any],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = getattr(SparseDataset, method)
    monkeypatch.setattr(SparseDataset, method, lambda self, *rest: spoil(right(self, *rest)))
    assert demo.main(SMALL) == 1
    told = capsys.readouterr().out
    assert "all right" not in told
    assert named in told.rpartition("wrong  ")[2]


def test_a_wrong_answer_about_frames_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_cells", lambda *rest: (None, []))
    monkeypatch.setattr(SparseDataset, "erase", lambda self, select: None)
    assert demo.main(SMALL) == 1
    assert "erased in all frames" in capsys.readouterr().out.rpartition("wrong  ")[2]


def test_a_wrong_copy_of_the_rest_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = Connection.binary

    def spoilt(self: Connection, method: str, path: str, *rest: Any, **params: Any) -> bytes:
        data = binary(self, method, path, *rest, **params)
        return data if params or method != "GET" else data[:-1] + bytes([data[-1] ^ 1])

    monkeypatch.setattr(Connection, "binary", spoilt)
    assert demo.main(SMALL) == 1
    assert "The values of /X: the answer at [699, 764]" in capsys.readouterr().out.rpartition("wrong  ")[2]


def test_a_request_that_fails_is_named_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "CELLS_DOMAIN", "/no/such/folder.h5")
    assert demo.main(SMALL) == 1
    assert "does not exist" in capsys.readouterr().out.rpartition("wrong  ")[2]


def test_it_does_not_write_into_a_directory_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("here")
    assert demo.main(["--keep", str(tmp_path)]) == 2
    assert "not an empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("flags", [["--frames", "1"], ["--every", "0"], ["--frames", "many"]])
def test_flags_out_of_range_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        demo.main(flags)
    assert flags[0] in capsys.readouterr().err
