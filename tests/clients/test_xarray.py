"""h5netcdf and xarray over h5pyd 1.0.0, against a real server: what they write and read is what files give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import pytest
import xarray as xr
from xarray.backends import H5NetCDFStore

from tests.clients.h5pyd_tool import run_tool
from tests.clients.netcdf_files import encoded, weather, write_encoded, write_groups

Opened = Callable[..., h5netcdf.File]


@pytest.fixture(scope="module")
def endpoint(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def access(endpoint: str) -> dict[str, Any]:
    """How h5pyd is told where the server is."""
    return {"endpoint": endpoint, "username": "admin", "password": "any", "retries": 1}


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    """The path of a domain of this test's name."""
    return f"/home/admin/{request.node.name.replace('[', '-').strip(']')}.nc"


def contents(group: h5netcdf.Group) -> Any:
    """Return all that netCDF knows of a group, as plain values."""
    variables = {
        name: (
            variable.dimensions,
            variable.dtype,
            variable.chunks is None,
            variable.compression,
            variable.shuffle,
            variable[...].tolist(),
            attributes(variable),
        )
        for name, variable in sorted(group.variables.items())
    }
    dimensions = {name: (part.size, part.isunlimited()) for name, part in sorted(group.dimensions.items())}
    groups = {name: contents(part) for name, part in sorted(group.groups.items())}
    return dimensions, attributes(group), variables, groups


def attributes(holder: Any) -> dict[str, Any]:
    return {name: np.asarray(holder.attrs[name]).tolist() for name in sorted(holder.attrs)}


def write_variables(file: h5netcdf.File) -> None:
    file.dimensions = {"time": None, "place": 5}
    file.attrs["title"] = "hé llo"
    file.attrs["levels"] = np.array([1.5, 2.5])
    rain = file.create_variable("rain", ("time", "place"), "f4", fillvalue=np.float32(-1), compression="gzip")
    rain.attrs["units"] = "mm"
    file.resize_dimension("time", 3)
    file.flush()
    rain[...] = np.arange(15).reshape(3, 5)
    file.create_variable("place", ("place",), "i4", data=np.arange(5) * 10)
    file.create_variable("big", ("place",), ">i2", data=np.arange(5), shuffle=True, chunks=(5,))


def write_groups_of_variables(file: h5netcdf.File) -> None:
    file.dimensions["x"] = 4
    inner = file.create_group("g").create_group("inner")
    inner.dimensions["y"] = 2
    inner.create_variable("z", ("y", "x"), "f8", data=np.arange(8.0).reshape(2, 4))
    file.create_variable("/g/made/with/parents", ("x",), "i1", data=np.arange(4))


def write_twice(file: h5netcdf.File) -> None:
    write_variables(file)
    file.resize_dimension("time", 6)
    file.flush()
    file["rain"][3:6] = 7


PROGRAMS = [write_variables, write_groups_of_variables, write_twice]


@pytest.mark.parametrize("program", PROGRAMS)
def test_h5netcdf_beside_a_file(
    access: dict[str, Any], path: str, tmp_path: Path, program: Callable[[h5netcdf.File], None]
) -> None:
    with h5netcdf.File(tmp_path / "model.nc", "w") as file:
        program(file)
    with h5netcdf.File(f"hdf5:/{path}", "w", **access) as file:
        assert file.backend == "h5pyd"
        program(file)
    with h5netcdf.File(tmp_path / "model.nc") as model, h5netcdf.File(f"hdf5:/{path}", **access) as file:
        assert contents(file) == contents(model)


def test_h5netcdf_appends_to_a_domain(access: dict[str, Any], path: str) -> None:
    with h5netcdf.File(f"hdf5:/{path}", "w", **access) as file:
        write_variables(file)
    with h5netcdf.File(f"hdf5:/{path}", "a", **access) as file:
        file.resize_dimension("time", 4)
        file.flush()
        file["rain"][3] = 9
        file["rain"].attrs["note"] = "longer"
    with h5netcdf.File(f"hdf5:/{path}", **access) as file:
        np.testing.assert_array_equal(file["rain"][2:4], [np.arange(10, 15), np.full(5, 9)])
        assert dict(file["rain"].attrs) == {"_FillValue": -1, "units": "mm", "note": "longer"}
        assert file.dimensions["time"].size == 4


@pytest.mark.parametrize("encoding", [{}, encoded()], ids=["plain", "encoded"])
def test_xarray_writes_and_reads(access: dict[str, Any], path: str, encoding: dict[str, Any]) -> None:
    with H5NetCDFStore(h5netcdf.File(f"hdf5:/{path}", "w", **access)) as store:
        weather().dump_to_store(store, encoding=encoding, unlimited_dims=["time"] if encoding else None)
    with read(path, access) as found:
        check(found, weather(), packed=bool(encoding))


def test_xarray_writes_by_a_flag(access: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "H5NETCDF_WRITE_BACKEND": "h5pyd",
        "H5NETCDF_READ_BACKEND": "h5pyd",
        "HS_ENDPOINT": access["endpoint"],
        "HS_USERNAME": "admin",
        "HS_PASSWORD": "any",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    weather().to_netcdf(path, engine="h5netcdf")
    with xr.open_dataset(path, engine="h5netcdf") as found:
        check(found, weather())


def test_xarray_reads_parts(access: dict[str, Any], path: str) -> None:
    with H5NetCDFStore(h5netcdf.File(f"hdf5:/{path}", "w", **access)) as store:
        weather().dump_to_store(store)
    with read(path, access) as found:
        for index in ({"time": 3}, {"lat": slice(1, 3), "lon": [0, 2, 4]}, {"time": slice(None, None, 2)}):
            xr.testing.assert_identical(found["rain"].isel(index).load(), weather()["rain"].isel(index))
        near = found["temperature"].sel(lon=140, method="nearest").load()
        xr.testing.assert_identical(near, weather()["temperature"].sel(lon=140, method="nearest"))


def test_xarray_reads_what_hsload_loaded(access: dict[str, Any], path: str, tmp_path: Path) -> None:
    write_encoded(tmp_path / "weather.nc", engine="h5netcdf")
    loaded = run_tool(access["endpoint"], "hsload", str(tmp_path / "weather.nc"), path)
    assert loaded.returncode == 0, loaded.stderr
    with xr.open_dataset(tmp_path / "weather.nc", engine="h5netcdf") as model, read(path, access) as found:
        xr.testing.assert_identical(found.load(), model.load())


def test_xarray_reads_groups(access: dict[str, Any], path: str, tmp_path: Path) -> None:
    write_groups(tmp_path / "groups.nc", engine="h5netcdf")
    loaded = run_tool(access["endpoint"], "hsload", str(tmp_path / "groups.nc"), path)
    assert loaded.returncode == 0, loaded.stderr
    options = {"engine": "h5netcdf", "driver_kwds": {"backend": "h5pyd", **access}}
    with (
        xr.open_datatree(tmp_path / "groups.nc", engine="h5netcdf") as model,
        xr.open_datatree(path, **options) as found,
    ):
        xr.testing.assert_identical(found.load(), model.load())


def read(path: str, access: dict[str, Any], **options: Any) -> xr.Dataset:
    """Open a domain by its path, as one opens a file."""
    return xr.open_dataset(path, engine="h5netcdf", driver_kwds={"backend": "h5pyd", **access}, **options)


def check(found: xr.Dataset, model: xr.Dataset, packed: bool = False) -> None:
    """Compare what was read with what was written; `packed` temperatures have steps of 0.01."""
    if packed:
        assert found["temperature"].encoding["complevel"] == 5
        assert found.encoding["unlimited_dims"] == {"time"}
        np.testing.assert_allclose(found["temperature"], model["temperature"], atol=0.0051, rtol=0)
        found, model = found.drop_vars("temperature"), model.drop_vars("temperature")
    xr.testing.assert_identical(found.load(), model)
