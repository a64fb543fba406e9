"""What `hsparse.open` returns is shared by threads, forked processes and pickles, as its connection is.

A pickle has the credentials, and no connections. Connections themselves: tests/client/http/test_connection_pool.py.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hsparse
from hsparse.client.connection import Connection

ROOT = Path(__file__).parents[2]
PLACES, VALUES = [[0, 1], [3, 3]], [5.0, 7.0]


@pytest.fixture
def file(connection: Connection) -> Iterator[hsparse.File]:
    address = f"{connection.url}{connection.domain}"
    with hsparse.open(address, user="ada", password="secret of ada") as found:
        assert isinstance(found, hsparse.File)
        found.create_group("run", {"title": "first", "numbers": [1, 2]})
        found.create_dataset("run/dense", data=np.arange(10))
        found.create_dataset("run/words", data=["a", "ü"])
        found.create_sparse("run/sparse", (4, 4), "f4", (2, 2)).write(PLACES, VALUES)
        yield found


def members(file: hsparse.File) -> list[Any]:
    run = file["run"]
    return [file, run, run.attrs, *(file[f"run/{name}"] for name in ("dense", "words", "sparse"))]


def content(found: list[Any]) -> list[Any]:
    file, run, attrs, dense, words, sparse = found
    return [
        list(file),
        sorted(run),
        attrs["title"],
        attrs["numbers"].tolist(),
        dense[2:5].tolist(),
        words[:].tolist(),
        [part.tolist() for part in sparse.read()],
        dense.attrs.get("none"),
    ]


WANTED = [
    ["run"],
    ["dense", "sparse", "words"],
    "first",
    [1, 2],
    [2, 3, 4],
    ["a", "ü"],
    [PLACES, VALUES],
    None,
]


def test_a_pickle_of_each_object_works_and_has_the_credentials(file: hsparse.File) -> None:
    assert content(members(file)) == WANTED
    data = pickle.dumps(members(file))
    copies = pickle.loads(data)
    assert content(copies) == WANTED
    assert copies[0].connection._headers == file.connection._headers
    assert all("secret" not in repr(one) for one in copies)
    copies[5].write([[1, 1]], [9])
    assert copies[5].count() == 3
    copies[0].close()


def test_a_pickle_keeps_what_was_known(file: hsparse.File) -> None:
    dataset = file["run/dense"]
    assert isinstance(dataset, hsparse.DenseDataset)
    copy = pickle.loads(pickle.dumps(dataset))
    assert (copy.shape, copy.dtype, copy.name, copy.id) == ((10,), dataset.dtype, "/run/dense", dataset.id)


def test_a_folder_can_be_pickled(url: str) -> None:
    top = pickle.loads(pickle.dumps(hsparse.open(url)))
    assert isinstance(top, hsparse.Folder)
    assert isinstance(list(top), list)
    top.close()


def test_threads_share_objects(file: hsparse.File) -> None:
    found = members(file)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: content(found), range(40)))
    assert all(result == WANTED for result in results)


def share_with_forks(found: list[Any]) -> None:
    assert content(found) == WANTED  # its connections are open
    with multiprocessing.get_context("fork").Pool(2) as pool:
        waiting = [pool.apply_async(content, [found]) for _ in range(4)]
        assert content(found) == WANTED
        assert all(one.get(30) == WANTED for one in waiting)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_shares_objects(file: hsparse.File) -> None:
    """In a process without the threads of servers: what these hold at a fork, the fork never gets."""
    program = f"import pickle, sys; from {__name__} import *; share_with_forks(pickle.load(sys.stdin.buffer))"
    found = pickle.dumps(members(file))
    subprocess.run([sys.executable, "-c", program], input=found, cwd=ROOT, check=True, timeout=60)
