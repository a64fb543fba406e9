"""A file by netCDF4, made by a process of its own: `python -m tests.files_matrix.netcdf4_file PATH`."""

from __future__ import annotations

import sys
from pathlib import Path

import netCDF4
import numpy as np


def make(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as out:
        out.createDimension("time", None)
        out.createDimension("x", 3)
        time = out.createVariable("time", "f8", ("time",))
        time.units = "hours since 2026-01-01"
        rain = out.createVariable("rain", "i2", ("time", "x"), zlib=True, fill_value=-1)
        rain.scale_factor = 0.5
        flags = out.createVariable("flags", "u1", ("x",))
        name = out.createVariable("name", str, ("x",))
        time[:] = [0, 1, 2, 3]
        rain[:] = np.arange(12).reshape(4, 3)
        flags[:] = [0, 255, 3]
        for place, text in enumerate(("a", "bü", "")):
            name[place] = text
        out.createGroup("inner").createVariable("y", "f4", ())[:] = 2.5


if __name__ == "__main__":
    make(Path(sys.argv[1]))
