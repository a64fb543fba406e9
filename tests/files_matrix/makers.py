"""Files of every maker: those of h5py by topic (`tests.clients.hdf5_files`), and those of other libraries."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse
import tables

from tests.clients.hdf5_files import FILES, OPTIONS, Maker, objects
from tests.clients.netcdf_files import write_encoded, write_groups, write_plain

MAKERS: dict[str, Callable[[Path], None]] = {}


def maker(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Register a function that makes a file at a path."""

    def register(make: Callable[[Path], None]) -> Callable[[Path], None]:
        MAKERS[name] = make
        return make

    return register


def _by_h5py(fill: Maker, options: dict[str, Any], path: Path) -> None:
    with h5py.File(path, "w", **options) as out:
        fill(out)


MAKERS |= {f"h5py: {topic}": partial(_by_h5py, fill, OPTIONS.get(topic, {})) for topic, fill in FILES.items()}


@maker("h5py: newest bounds")
def _(path: Path) -> None:
    with h5py.File(path, "w", libver="latest", track_order=True) as out:
        for name, maximum in (("fixed", (9,)), ("one", (None,)), ("both", (None, None))):
            shape = (9,) if len(maximum) == 1 else (9, 6)
            data = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
            out.create_dataset(
                name, data=data, maxshape=maximum, chunks=(4,) * len(shape), compression="gzip", shuffle=True
            )
        layout = h5py.VirtualLayout((9,), "<i4")
        layout[:] = h5py.VirtualSource(out["fixed"])
        out.create_virtual_dataset("view", layout, fillvalue=-1)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "n": np.arange(5),
            "x": np.linspace(0, 1, 5),
            "s": ["a", "bb", "", "d", "e"],
            "b": [True, False] * 2 + [True],
        }
    )


@maker("pandas: a table")
def _(path: Path) -> None:
    frame().to_hdf(path, key="t", format="table", data_columns=["n"])


@maker("pandas: fixed")
def _(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it pickles texts
        frame().drop(columns="s").to_hdf(path, key="f", format="fixed")


@maker("PyTables: arrays")
def _(path: Path) -> None:
    with tables.open_file(path, "w", title="of PyTables") as out:
        out.create_array("/", "plain", np.arange(6).reshape(2, 3))
        out.create_carray(
            "/", "chunked", obj=np.arange(40.0), chunkshape=(16,), filters=tables.Filters(5, "zlib")
        )
        growing = out.create_earray("/", "growing", tables.Int16Atom(), (0, 3))
        growing.append(np.arange(6, dtype="i2").reshape(2, 3))
        ragged = out.create_vlarray("/", "ragged", tables.Float32Atom())
        ragged.append([1.0, 2.0])
        ragged.append([3.0])
        table = out.create_table(
            "/group", "records", {"a": tables.Int32Col(), "t": tables.StringCol(5)}, createparents=True
        )
        table.append([(1, b"one"), (2, b"two")])


@maker("anndata: cells")
def _(path: Path) -> None:
    counts = scipy.sparse.random(12, 7, 0.3, "csr", "<f4", random_state=1)
    data = anndata.AnnData(
        counts,
        pd.DataFrame(
            {"kind": pd.Categorical(list("aabbccaabbcc")), "n": np.arange(12)}, [f"c{i}" for i in range(12)]
        ),
        pd.DataFrame({"gene": [f"g{i}" for i in range(7)]}, [f"v{i}" for i in range(7)]),
        layers={"log": counts.tocsc()},
        obsm={"pca": np.arange(24.0).reshape(12, 2)},
        uns={"k": {"a": 1, "b": "text"}},
    )
    data.write_h5ad(path, compression="gzip")


@maker("netCDF4: weather")
def _(path: Path) -> None:
    # In a process of its own: the HDF5 that netCDF4 comes with keeps h5py's from the filter blosc.
    subprocess.run([sys.executable, "-m", "tests.files_matrix.netcdf4_file", path], check=True)


MAKERS |= {
    "xarray: plain": partial(write_plain, engine="h5netcdf"),
    "xarray: encoded": partial(write_encoded, engine="h5netcdf"),
    "xarray: groups": partial(write_groups, engine="h5netcdf"),
}


@maker("MATLAB v7.3")
def _(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as out:
        matrix = out.create_dataset("A", data=np.arange(6.0).reshape(3, 2))
        matrix.attrs["MATLAB_class"] = np.bytes_("double")
        text = out.create_dataset("s", data=np.array([[ord(c)] for c in "text"], "<u2"))
        text.attrs["MATLAB_class"] = np.bytes_("char")
        text.attrs["MATLAB_int_decode"] = np.int32(2)
        cells = out.create_dataset("c", (2, 1), h5py.ref_dtype)
        cells[0, 0], cells[1, 0] = matrix.ref, text.ref
        cells.attrs["MATLAB_class"] = np.bytes_("cell")
        empty = out.create_dataset("e", data=np.array([0, 3], "<u8"))
        empty.attrs["MATLAB_empty"] = np.int32(1)
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + b"\x00\x02IM"
    with path.open("r+b") as file:
        file.write(head)


@maker("NeXus: a scan")
def _(path: Path) -> None:
    with h5py.File(path, "w") as out:
        entry = out.create_group("entry")
        entry.attrs["NX_class"] = "NXentry"
        counts = entry.create_dataset(
            "instrument/counts", data=np.arange(8, dtype="<u4").reshape(2, 4), chunks=(1, 4)
        )
        counts.attrs["units"] = "counts"
        data = entry.create_group("data")
        data.attrs.update({"NX_class": "NXdata", "signal": "counts", "axes": ["y", "x"]})
        data["counts"] = h5py.SoftLink("/entry/instrument/counts")
        data["x"] = np.linspace(0, 1, 4)
        data["y"] = h5py.SoftLink("/entry/nowhere")
        events = entry.create_group("events")
        events.attrs["NX_class"] = "NXevent_data"
        events["event_id"] = np.array([3, 1, 4, 1], "<u4")
        events["event_index"] = np.array([0, 2], "<u8")
        events["event_time_zero"] = np.array([0.0, 0.1])
        events.create_dataset("title", data=objects("a", "b"), dtype=h5py.string_dtype())
