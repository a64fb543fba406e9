"""h5pyd's command-line tools, unmodified, against a real server: what needs no values to be asked for."""

from __future__ import annotations

import re
from collections.abc import Callable

import h5pyd
import numpy as np
import pytest
import requests

from tests.clients.h5pyd_tool import run_tool

HOME = "/home/admin"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def endpoint(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def tool(endpoint: str) -> Tool:
    """Run a tool and return what it printed; `status` is what it must end with."""

    def run(name: str, *arguments: str, status: int = 0) -> str:
        done = run_tool(endpoint, name, *arguments)
        assert done.returncode == status, f"{name} printed {done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if status else "")

    return run


@pytest.fixture
def made(endpoint: str, request: pytest.FixtureRequest) -> str:
    """The path of a file with objects of all kinds, links and attributes, in a folder of the test's name."""
    folder = f"{HOME}/{request.node.originalname}"
    options = {"endpoint": endpoint, "username": "admin", "password": "any"}
    h5pyd.Folder(folder + "/", mode="w", **options)
    with h5pyd.File(f"{folder}/a.h5", "w", **options) as file:
        file.attrs["title"] = "hällo"
        group = file.create_group("g")
        data = np.arange(24).reshape(4, 6)
        dataset = group.create_dataset("d", data=data, chunks=(2, 3), compression="gzip")
        dataset.attrs["units"] = "mm"
        file.create_dataset("one", data=3.25)
        file["kind"] = np.dtype([("n", "<i4"), ("v", "<f8")])
        file["hard"] = dataset
        file["soft"] = h5pyd.SoftLink("/g/d")
        file["away"] = h5pyd.ExternalLink("/home/admin/other.h5", "/x")
    return f"{folder}/a.h5"


def listed(tool: Tool, *arguments: str) -> list[str]:
    return [line.split()[-1] for line in tool("hsls", *arguments).splitlines()[:-1]]


def test_hsinfo(tool: Tool, endpoint: str) -> None:
    told = dict(line.split(": ", 1) for line in tool("hsinfo").splitlines())
    assert told["server state"] == "READY"
    assert told["endpoint"] == endpoint
    assert told["username"] == "admin (admin)"
    assert told["server version"].startswith("1.")


def test_hstouch_hsls_and_hsdel(tool: Tool) -> None:
    folder = f"{HOME}/touched"
    tool("hstouch", f"{folder}/")
    tool("hstouch", f"{folder}/a.h5")
    tool("hstouch", f"{folder}/a.h5")
    tool("hstouch", f"{folder}/inner/")
    assert listed(tool, f"{folder}/") == [f"{folder}/", f"{folder}/a.h5", f"{folder}/inner/"]
    assert "sub-items" in tool("hsdel", f"{folder}/", status=1)
    tool("hsdel", f"{folder}/nope.h5", status=1)
    for path in ("a.h5", "inner/", ""):
        tool("hsdel", f"{folder}/{path}")
    assert folder not in tool("hsls", f"{HOME}/")


def test_hsls_of_a_file(tool: Tool, made: str) -> None:
    lines = tool("hsls", "-r", made).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "/away ExternalLink {/x///home/admin/other.h5}",
        "/g Group",
        "/g/d Dataset {4, 6}",
        "/hard Dataset, same as /g/d",
        "/kind Datatype",
        "/one Dataset {{SCALAR}}",
        "/soft SoftLink {/g/d}",
    ]
    verbose = tool("hsls", "-r", "-v", "--showattrs", made)
    for part in ("hällo", "units", "gzip", "Chunks: [2, 3]"):
        assert part in verbose


def test_hsstat(tool: Tool, made: str) -> None:
    told = dict(line.strip().split(":", 1) for line in tool("hsstat", made).splitlines())
    assert told["owner"].strip() == "admin"
    assert int(told["num objects"]) == 5
    assert int(told["num chunks"]) == 2
    assert int(told["total_size"]) == int(told["allocated_bytes"]) + int(told["metadata_bytes"])


def test_hsacl(tool: Tool, made: str) -> None:
    tool("hsacl", made, "+r", "default")
    tool("hsacl", made, "+crud", "anna")
    tool("hsacl", made, "-d", "anna")
    rows = [line.split() for line in tool("hsacl", made).splitlines()[2:]]
    assert rows == [
        ["admin", *["True"] * 6],
        ["anna", "True", "True", "True", "False", "False", "False"],
        ["default", "False", "True", *["False"] * 4],
    ]
    assert tool("hsacl", made, "anna").splitlines()[2].split() == rows[1]


def test_hscopy(tool: Tool, made: str, endpoint: str) -> None:
    copy = made.replace("a.h5", "copy.h5")
    tool("hscopy", made, copy)
    without_ids = [
        re.sub(r"UUID: \S+", "", tool("hsls", "-r", "-v", "--showattrs", path)) for path in (made, copy)
    ]
    assert without_ids[0] == without_ids[1]
    options = {"endpoint": endpoint, "username": "admin", "password": "any"}
    with h5pyd.File(copy, "r", **options) as file:
        np.testing.assert_array_equal(file["soft"][...], np.arange(24).reshape(4, 6))
        assert file["hard"] == file["g/d"]
    tool("hsdel", made)
    with h5pyd.File(copy, "r", **options) as file:
        np.testing.assert_array_equal(file["g/d"][1:3], np.arange(24).reshape(4, 6)[1:3])


def test_a_domain_moved_as_hsmv_moves_it(tool: Tool, made: str, endpoint: str) -> None:
    """hsmv of h5pyd 0.24 sends this; that of 1.0.0 leaves `linked_domain` out, and moves nothing, on HSDS too."""
    moved = made.replace("a.h5", "moved.h5")
    before = tool("hsls", "-r", "-v", made)
    options = {"timeout": 60, "auth": ("admin", "any")}
    reply = requests.put(f"{endpoint}/", params={"domain": moved}, json={"linked_domain": made}, **options)
    assert reply.status_code == 201
    reply = requests.delete(f"{endpoint}/", params={"domain": made, "keep_root": 1}, **options)
    assert reply.status_code == 200
    assert tool("hsls", "-r", "-v", moved) == before
    assert "has been removed" in tool("hsls", made)
