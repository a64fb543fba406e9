"""The sizes of served files: those on disk, in listings, statistics and sums."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.config import load_settings
from hsparse.hdf5.in_place import store
from tests.sn.in_place.test_changes import asked
from tests.sn.in_place.test_large_files import write_kinds


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sizes") / "runs"
    (place / "sub").mkdir(parents=True)
    for version in ("earliest", "latest"):
        write_kinds(place / f"{version}.h5", version)
    with h5py.File(place / "sub" / "zeros.h5", "w") as file:
        file.create_dataset("x", data=np.zeros(100_000), chunks=(1000,), compression="gzip", fletcher32=True)
        file.create_dataset("odd", data=np.zeros(100_000, ">f8"), chunks=(7,), compression="gzip")
    return place


@pytest.fixture(scope="module")
def url(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("root")
    settings = load_settings(root=root, port=0, fsync=False, files=(str(place),), files_cache=root / "cache")
    with embedded_server(settings) as url:
        yield url


def sizes(url: str, folder: str, **params: Any) -> dict[str, int]:
    text = "".join(f"&{name}={value}" for name, value in params.items())
    entries = json.loads(asked(url, f"/domains?domain={folder}&verbose=1{text}"))["domains"]
    return {one["name"]: one["total_size"] for one in entries if one["class"] == "domain"}


def on_disk(place: Path, folder: str) -> dict[str, int]:
    files = (place / folder).iterdir()
    return {f"/{one.relative_to(place.parent)}": one.stat().st_size for one in files if one.is_file()}


@pytest.mark.parametrize("folder", ["", "sub"])
def test_a_file_counts_as_its_size_on_disk(url: str, place: Path, folder: str) -> None:
    assert sizes(url, f"/runs/{folder}") == on_disk(place, folder)
    for name, size in on_disk(place, folder).items():
        found = json.loads(asked(url, f"/?domain={name}&verbose=1"))
        assert found["total_size"] == size
        assert found["allocated_bytes"] > 0


def test_sizes_alone_are_told_without_a_look_into_files(
    url: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store, "ServedFile", None)
    (place / "new.h5").write_bytes((place / "latest.h5").read_bytes())
    right = on_disk(place, "")
    assert sizes(url, "/runs/", size_only=1) == right
    assert json.loads(asked(url, "/?domain=/runs/new.h5&verbose=1&size_only=1"))["total_size"] == sum(
        size for name, size in right.items() if name.endswith("new.h5")
    )
    access = ["--endpoint", url]
    assert main(["ls", "-l", "/runs", *access]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {line[-1]: int(line[2]) for line in lines if line[0] == "domain"} == right
    assert main(["du", "-s", "/runs", *access]) == 0
    total = sum(right.values()) + sum(on_disk(place, "sub").values())
    assert capsys.readouterr().out.split()[0] == str(total)
