"""H5Web's HSDS provider, unmodified, from npm: it walks a domain and reads all values in it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5pyd
import numpy as np
import pytest
import requests

HERE = Path(__file__).parent / "h5web"
INSTALLED = Path(__file__).parents[2] / ".h5web"
"""Where npm puts the client; kept from run to run."""
DOMAIN = "/home/admin/h5web.h5"

pytestmark = pytest.mark.needs("node", "npm")


@pytest.fixture(scope="module")
def script() -> Path:
    """The script that uses the client, beside the client's packages."""
    INSTALLED.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json", "read.mjs"):
        shutil.copy(HERE / name, INSTALLED / name)
    if not (INSTALLED / "node_modules" / "@h5web").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=INSTALLED, check=True, timeout=300)
    return INSTALLED / "read.mjs"


@pytest.fixture(scope="module")
def endpoint(embedded_url: str) -> str:
    return embedded_url


def write(endpoint: str) -> None:
    with h5pyd.File(DOMAIN, "w", endpoint=endpoint, username="admin", password="any", retries=1) as file:
        file.attrs["title"] = "a file"
        file.attrs["numbers"] = np.array([[1, 2], [3, 4]], "<i2")
        group = file.create_group("group")
        group.attrs["point"] = np.array((1, 2.5), [("n", "<i4"), ("x", "<f8")])
        group.create_dataset("table", data=np.arange(12, dtype="<i4").reshape(3, 4), chunks=(2, 2))
        group.create_dataset("scalar", data=np.float64(2.5))
        group.create_dataset("words", data=np.array([b"one", b"two"]))
        group.create_dataset("flags", data=np.array([True, False]))
        records = np.array([(1, 0.5), (2, 1.5)], [("n", "<i4"), ("x", "<f4")])
        group.create_dataset("records", data=records)
        group.create_dataset("values", data=np.array([1, np.nan, np.inf]))
        sparse = {"class": "H5D_STRUCT_CHUNK", "dims": [4, 4], "flags": ["H5D_SPARSE_DATA"]}
        dataset = group.create_dataset("sparse", (8, 8), "<i4", chunks=sparse)
        dataset[2:4, 3] = [7, 8]
        file["soft"] = h5pyd.SoftLink("/group/table")
        file["external"] = h5pyd.ExternalLink("/home/admin/other.h5", "/x")
        file.flush()
        parent = {"id": group.id.uuid, "name": "empty"}  # h5pyd itself makes a scalar of an empty dataset
    body = {"type": "H5T_IEEE_F32LE", "shape": "H5S_NULL", "link": parent}
    answer = requests.post(f"{endpoint}/datasets", params={"domain": DOMAIN}, json=body, timeout=30)
    assert answer.status_code == 201, answer.text


def read(script: Path, endpoint: str) -> dict[str, Any]:
    command = ["node", str(script), endpoint, DOMAIN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_everything_is_found(script: Path, endpoint: str) -> None:
    write(endpoint)
    found = read(script, endpoint)
    names = ("table", "scalar", "words", "flags", "empty", "records", "values", "sparse")
    assert found.keys() == {"/", "/group", "/soft", "/external", *(f"/group/{name}" for name in names)}
    assert found["/"]["attributes"] == {"title": "a file", "numbers": [[1, 2], [3, 4]]}
    assert found["/group"]["attributes"] == {"point": [1, 2.5]}
    table = found["/group/table"]
    assert (table["shape"]["dims"], table["value"]) == ([3, 4], list(range(12)))
    assert (table["row"], found["/group/scalar"]["value"]) == ([4, 5, 6, 7], 2.5)
    assert found["/group/words"]["value"] == ["one", "two"]
    assert found["/group/flags"]["type"]["class"] == "Boolean"
    assert found["/group/flags"]["value"] in ([1, 0], [True, False])
    assert found["/group/empty"]["shape"]["class"] == "Null"
    assert found["/group/records"]["value"] == [[1, 0.5], [2, 1.5]]
    assert found["/group/values"]["value"] in ([1, None, None], [1, "NaN", "Infinity"])
    dense = np.zeros((8, 8), int)
    dense[2:4, 3] = [7, 8]
    assert found["/group/sparse"]["value"] == dense.ravel().tolist()
    assert found["/soft"]["link"] == {"class": "Soft", "path": "/group/table"}
    assert found["/external"]["link"] == {"class": "External", "path": "/x", "file": "/home/admin/other.h5"}
