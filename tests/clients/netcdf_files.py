"""NetCDF-4 files as xarray writes them, by topic and engine: `NETCDF` has the functions that write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

ENGINES = ("h5netcdf", "netcdf4")


def weather() -> xr.Dataset:
    """Coordinates of numbers, times and text, variables of several types, attributes, no missing dimension."""
    rng = np.random.default_rng(6)
    times = np.datetime64("2024-02-27T06:00", "ns") + np.arange(6) * np.timedelta64(12, "h")
    shape = (6, 4, 5)
    temperature = rng.normal(280, 5, shape)
    temperature[2, 1] = np.nan
    return xr.Dataset(
        {
            "temperature": (
                ("time", "lat", "lon"),
                temperature,
                {"units": "K", "valid_range": [200.0, 350.0]},
            ),
            "rain": (("time", "lat", "lon"), rng.random(shape).astype("f4"), {"long_name": "größe"}),
            "count": (("time",), np.arange(6, dtype="i2")),
            "wet": (("lat", "lon"), rng.random((4, 5)) > 0.5),
            "station": (("lat",), np.array(["a", "Zürich", "", "日本"], dtype=object)),
            "elapsed": (("time",), np.arange(6) * np.timedelta64(90, "s").astype("m8[ns]")),
            "height": ((), 2.0),
        },
        coords={
            "time": times,
            "lat": ("lat", np.linspace(-90, 90, 4), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(5) * 72.0),
            "label": ("lon", np.array([b"a", b"bc", b"d", b"e", b"f"])),
        },
        attrs={"title": "wéather", "version": np.int32(3), "levels": np.array([1.5, 2.5])},
    )


def encoded() -> dict[str, Any]:
    """Return how the variables of `weather` may be stored: packed, compressed, chunked, with fill values."""
    return {
        "temperature": {
            "dtype": "i2",
            "scale_factor": 0.01,
            "add_offset": 273.15,
            "_FillValue": -32768,
            "zlib": True,
            "complevel": 5,
            "shuffle": True,
            "chunksizes": (2, 4, 5),
        },
        "rain": {"zlib": True, "fletcher32": True, "_FillValue": np.float32(-1)},
        "time": {"units": "hours since 2024-01-01", "calendar": "standard", "dtype": "i4"},
    }


def write_plain(path: Path, **options: Any) -> None:
    weather().to_netcdf(path, **options)


def write_encoded(path: Path, **options: Any) -> None:
    weather().to_netcdf(path, encoding=encoded(), unlimited_dims=["time"], **options)


def write_without_coordinates(path: Path, **options: Any) -> None:
    weather().drop_vars(["time", "lat", "lon", "label"]).to_netcdf(path, **options)


def write_groups(path: Path, **options: Any) -> None:
    tree = xr.DataTree.from_dict(
        {
            "/": weather()[["height"]],
            "/model": weather(),
            "/model/run": xr.Dataset({"x": ("n", np.arange(3))}),
        }
    )
    tree.to_netcdf(path, **options)


TOPICS: dict[str, Callable[..., None]] = {
    "plain": write_plain,
    "encoded": write_encoded,
    "without coordinates": write_without_coordinates,
    "groups": write_groups,
}
NETCDF = {
    f"netcdf {topic} by {engine}": partial(write, engine=engine)
    for topic, write in TOPICS.items()
    for engine in ENGINES
}
