"""Files whose names and lengths netCDF-4 keeps in its own way, by the engine `hsparse` and by xarray's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from xarray.testing import assert_equal

from hsparse.cli.main import main

netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
PADDED_WRONGLY = (
    "an_unlimited_dimension_with_several_lengths",
    "two_unlimited_dimensions_without_coordinates",
)
"""What netCDF4 1.7 pads as if only the first dimension could be short, partly with memory that nobody has written."""
FORMS: dict[str, Callable[[Any], None]] = {}


def form(write: Callable[[Any], None]) -> Callable[[Any], None]:
    FORMS[write.__name__] = write
    return write


@form
def named_like_a_dimension(file: Any) -> None:
    file.createDimension("nvec", 5), file.createDimension("collide", 7)
    file.createVariable("collide", "i8", ("nvec",))[:] = np.arange(5)
    file.createVariable("other", "i8", ("nvec",))[:] = 1


@form
def named_like_a_dimension_of_two(file: Any) -> None:
    file.createDimension("y", 2), file.createDimension("x", 3), file.createDimension("map", 3)
    file.createVariable("map", "f4", ("y", "x"))[:] = np.arange(6).reshape(2, 3)
    inner = file.createGroup("inner")
    inner.createDimension("map", 4)
    inner.createVariable("map", "f4", ("x",))[:] = 2


@form
def a_dimension_twice(file: Any) -> None:
    file.createDimension("x", 3), file.createDimension("y", 2)
    file.createVariable("cov", "f8", ("x", "x"))[:] = np.arange(9).reshape(3, 3)
    file.createVariable("both", "f8", ("x", "y", "x"))[:] = np.arange(18).reshape(3, 2, 3)


@form
def an_unlimited_dimension_with_several_lengths(file: Any) -> None:
    file.createDimension("time", None), file.createDimension("x", 2)
    file.createVariable("time", "f8", ("time",))[:] = np.arange(5.0)
    file.createVariable("a", "f4", ("time", "x"))[:5] = 1
    file.createVariable("b", "i4", ("time",), fill_value=-1)[:2] = [1, 2]
    file.createVariable("c", "i2", ("x", "time"))[:, :3] = 7
    file.createVariable("never", "f4", ("time",))


@form
def two_unlimited_dimensions_without_coordinates(file: Any) -> None:
    file.createDimension("time", None), file.createDimension("run", None)
    file.createVariable("a", "f4", ("time", "run"))[:3, :2] = 1
    file.createVariable("b", "f4", ("run", "time"), fill_value=np.nan)[:4, :1] = 2
    inner = file.createGroup("inner")
    inner.createVariable("c", "f8", ("time",))[:6] = 3


@pytest.mark.filterwarnings("ignore:Duplicate dimension names:UserWarning")
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (engine, name)
        for engine in ("netcdf4", "h5netcdf")
        for name in FORMS
        if engine == "h5netcdf" or name not in PADDED_WRONGLY
    ],
)
def test_it_is_what_other_engines_read(url: str, tmp_path: Path, name: str, engine: str) -> None:
    path, domain = tmp_path / "a.nc", f"/{name}-{engine}.nc"
    with netcdf.Dataset(path, "w") as file:
        FORMS[name](file)
        groups = [None, *file.groups]
    assert main(["import", str(path), domain, "--endpoint", url]) == 0
    for group in groups:
        with (
            xarray.open_dataset(path, engine=engine, group=group) as wanted,
            xarray.open_dataset(f"{url}{domain}", engine="hsparse", group=group) as found,
        ):
            assert {key: one.dims for key, one in found.variables.items()} == {
                key: one.dims for key, one in wanted.variables.items()
            }
            assert_equal(found.load(), wanted.load())


@pytest.mark.parametrize("key", [np.s_[3], np.s_[1:4], np.s_[::-2], np.s_[[4, 0, 2]], np.s_[3:], -1], ids=str)
def test_a_part_that_is_padded(url: str, tmp_path: Path, key: Any) -> None:
    path, domain = tmp_path / "a.nc", f"/padded-{abs(hash(str(key)))}.nc"
    with netcdf.Dataset(path, "w") as file:
        an_unlimited_dimension_with_several_lengths(file)
    assert main(["import", str(path), domain, "--endpoint", url]) == 0
    with (
        xarray.open_dataset(path, engine="h5netcdf") as wanted,
        xarray.open_dataset(f"{url}{domain}", engine="hsparse") as found,
    ):
        assert_equal(found.isel(time=key).load(), wanted.isel(time=key).load())
