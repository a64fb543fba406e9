from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import hsparse
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import Gone, NotFound

Run = Callable[..., list[str]]


@pytest.fixture
def folder(embedded_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A folder of the test's own, deleted with all that is in it."""
    path = f"/home/admin/{request.node.originalname}-{abs(hash(request.node.nodeid))}"
    with Connection(embedded_url) as connection:
        connection.json("PUT", "/", {"folder": 1}, domain=path)
    yield path
    assert main(["rm", "-r", path, "--endpoint", embedded_url]) == 0


@pytest.fixture
def run(embedded_url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, which is to succeed, and return its lines; with `status` 2, the sentence that it fails by."""

    def command(*words: str, status: int = 0) -> list[str]:
        capsys.readouterr()
        assert main([*words, "--endpoint", embedded_url]) == status, capsys.readouterr().err
        out, err = capsys.readouterr()
        return err.splitlines() if status else out.splitlines()

    return command


@pytest.fixture
def made(embedded_url: str, folder: str, tmp_path: Path) -> str:
    """A domain with groups, links, attributes, a dense, a text and a sparse dataset; return its path."""
    path = tmp_path / "some.h5"
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "some data"
        file.create_dataset(
            "dense", data=np.arange(200_000).reshape(1000, 200), chunks=(50, 200), compression="gzip"
        )
        group = file.create_group("group")
        group["words"] = ["one", "two and a half", ""]
        group["same"] = file["dense"]
        group["loop"] = group
        group["soft"] = h5py.SoftLink("/dense")
        group["far"] = h5py.ExternalLink("other.h5", "/x")
        group["ref"] = file["dense"].ref
        group["type"] = np.dtype("i2")
    domain = f"{folder}/some.h5"
    words = ["import", str(path), domain, "--endpoint", embedded_url, "--quiet"]
    assert main(words) == 3  # the file that "far" leads to is left behind
    with Connection(embedded_url, domain) as connection:
        frames = hsparse.SparseDataset.create(
            connection, "/group/frames", (10, 100), "f4", (5, 50), maxshape=(None, 100)
        )
        frames.write([[0, 1], [9, 99]], [0.0, 7.5])
    return domain


def is_gone(url: str, path: str) -> bool:
    with Connection(url, path) as connection:
        try:
            connection.json("GET", "/")
        except (NotFound, Gone):
            return True
    return False
