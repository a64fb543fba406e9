"""NetCDF-4 files that became domains, exported again: the netCDF library reads in both the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli.main import main
from tests.cli.importer.conftest import Import
from tests.clients.netcdf_files import NETCDF

SHOW = """
import json, sys
import netCDF4

def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value

def show(group):
    variables = {}
    for name, one in group.variables.items():
        one.set_auto_maskandscale(False)
        attributes = {key: plain(one.getncattr(key)) for key in one.ncattrs()}
        variables[name] = [str(one.dtype), one.dimensions, attributes, plain(one[...])]
    return {
        "dimensions": {name: [len(one), one.isunlimited()] for name, one in group.dimensions.items()},
        "attributes": {key: plain(group.getncattr(key)) for key in group.ncattrs()},
        "variables": variables,
        "groups": {name: show(one) for name, one in group.groups.items()},
    }

for path in sys.argv[1:]:
    with netCDF4.Dataset(path) as file:
        print(json.dumps(show(file), default=repr))
"""


def shown(*paths: Path) -> list[Any]:
    """Return what netCDF4 reads of files.

    It does so in a process of its own: it has another libhdf5, and changes where h5py's looks for filters.
    """
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *map(str, paths)], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("topic", NETCDF)
def test_netcdf_reads_the_same(imported: Import, tmp_path: Path, topic: str) -> None:
    NETCDF[topic](tmp_path / "original.nc")
    connection = imported(tmp_path / "original.nc")
    target = str(tmp_path / "back.nc")
    assert main(["export", str(connection.domain), target, "--endpoint", connection.url]) == 0
    before, after = shown(tmp_path / "original.nc", tmp_path / "back.nc")
    assert before["variables"] or before["groups"]
    assert after == before
