"""A server whose process is killed in the middle of a long read: an error, never a short result."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import anndata
import numpy as np
import polars
import pytest
import scipy.sparse

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.errors import Unreachable
from hsparse.client.sources.elements import Direct
from hsparse.storage.store_settings import StoreSettings
from tests.client.access_ways import plain_settings
from tests.support.server_process import server_process

ROWS, WIDTH = 2000, 50
LAYER_WIDTH = 8000
"""A layer of 16 MB: an answer that no socket's buffer has room for."""
DOMAIN = "/killed.h5ad"
ANSWERS = re.compile(r"/(values?|defined|map)\b")
"""Paths of what gives values, or says where they are."""


class Fate:
    """Calls `kill` when the answer with this number begins, of those that give values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kill: Callable[[], None], answers: int) -> None:
        self.seen = 0
        counted: WeakSet[http.client.HTTPConnection] = WeakSet()
        request, getresponse = http.client.HTTPConnection.request, http.client.HTTPConnection.getresponse

        def watched_request(connection: Any, method: str, target: str, *args: Any, **options: Any) -> None:
            (counted.add if ANSWERS.search(target) else counted.discard)(connection)
            request(connection, method, target, *args, **options)

        def watched_answer(connection: Any) -> Any:
            answer = getresponse(connection)
            self.seen += connection in counted
            if self.seen == answers:
                kill()
            return answer

        monkeypatch.setattr(http.client.HTTPConnection, "request", watched_request)
        monkeypatch.setattr(http.client.HTTPConnection, "getresponse", watched_answer)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an AnnData whose X has 20 rows of chunks."""
    root = tmp_path_factory.mktemp("killed")
    rng = np.random.default_rng(1)
    matrix = scipy.sparse.random_array((ROWS, WIDTH), density=0.2, rng=rng, dtype="f4", format="csr")
    data = anndata.AnnData(matrix)
    data.obsm["large"] = rng.integers(0, 255, (ROWS, LAYER_WIDTH), np.uint8)
    with (
        embedded_server(plain_settings(StoreSettings(root=root, fsync=False))) as url,
        hsparse.open(f"{url}{DOMAIN}", "w") as file,
    ):
        assert isinstance(file, hsparse.File)
        file.write_anndata(data, chunks=(100, WIDTH))
    return root


def read_rows(file: Any, taken: list[int]) -> None:
    for block in file["X"].iter_rows(100):
        taken.append(block.shape[0])


def read_scan(file: Any, taken: list[int]) -> None:
    taken.append(hsparse.scan(file, "X").collect().height)


def read_batches(file: Any, taken: list[int]) -> None:
    for batch in hsparse.Batches(file["X"], size=100, memory=100_000):
        taken.append(len(batch.rows))


def read_anndata(file: Any, taken: list[int]) -> None:
    taken.append(file.to_anndata().n_obs)


@pytest.mark.parametrize(
    ("read", "direct", "answers"),
    [
        (read_rows, False, 3),
        (read_rows, None, 3),
        (read_scan, False, 3),
        (read_scan, True, 3),
        (read_batches, False, 4),
        (read_batches, True, 4),
        (read_anndata, False, 1),
    ],
)
def test_it_is_an_error_and_no_short_result(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Any, list[int]], None],
    direct: Direct,
    answers: int,
) -> None:
    taken: list[int] = []
    with server_process("--root", str(root), "--no-fsync") as server:
        fate = Fate(monkeypatch, server.kill, answers)
        with (
            hsparse.open(f"{server.url}{DOMAIN}", direct=direct, retries=0, patience=0) as file,
            pytest.raises((Unreachable, polars.exceptions.ComputeError), match="not answer"),
        ):
            read(file, taken)
    assert fate.seen == answers
    assert sum(taken) < ROWS
    assert bool(taken) == (read in (read_rows, read_batches))
