"""An HDF5 file with every way of storing numbers that hsload can link to, and random selections of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

COMPOUND = np.dtype([("id", "<i4"), ("xyz", ">f8", (3,)), ("name", "S5"), ("ok", "?")])


def make_file(path: Path, seed: int = 1) -> None:
    """Write the file; all its datasets have more elements than hsload copies."""
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "linked"
        add = file.create_dataset
        add("contiguous/f8", data=rng.random((300, 70)))
        add("contiguous/big_endian", data=rng.integers(0, 2**31, (40, 30, 20)).astype(">i4"))
        add("contiguous/large", data=rng.integers(0, 2**31, (1500, 1201)).astype("<i4"))
        add("contiguous/compound", data=_records(rng, 900))
        add("chunked/plain", data=rng.random((100, 90)), chunks=(30, 40))
        add("chunked/three", data=rng.integers(0, 99, (20, 33, 40)).astype("<i2"), chunks=(7, 8, 9))
        add("chunked/gzip", data=rng.integers(0, 9, (200, 150)), chunks=(64, 50), compression="gzip")
        add(
            "chunked/shuffle",
            data=rng.integers(0, 999, (201, 151)).astype(">u2"),
            chunks=(20, 30),
            compression="gzip",
            shuffle=True,
        )
        add("chunked/lzf", data=np.arange(5000) // 7, chunks=(600,), compression="lzf", shuffle=True)
        add("chunked/lzf_declined", data=rng.random(3000), chunks=(500,), compression="lzf")
        add("chunked/fletcher", data=rng.random((60, 50)), chunks=(10, 20), fletcher32=True)
        add(
            "chunked/all",
            data=rng.integers(0, 99, (70, 80)).astype("<f4"),
            chunks=(16, 17),
            compression="gzip",
            shuffle=True,
            fletcher32=True,
        )
        add("chunked/compound", data=_records(rng, 1000), chunks=(64,), compression="gzip", shuffle=True)
        add(
            "chunked/strings", data=np.array([b"%d" % i for i in range(800)]), chunks=(90,), compression="lzf"
        )
        add("chunked/bool", data=rng.random((40, 40)) > 0.5, chunks=(16, 16), compression="gzip")
        holes = add("chunked/holes", (400, 300), "<i4", chunks=(20, 25), fillvalue=-7, compression="gzip")
        holes[35:90, 100:160] = rng.integers(0, 99, (55, 60))
        few = add(
            "chunked/few",
            (400, 300),
            "<i4",
            chunks=(100, 100),
            fillvalue=-7,
        )
        few[150:160, 10:20] = 5
        add("tiny", data=np.arange(20_000, dtype="<i4"), chunks=(10,))
        add("copied", data=np.arange(10))


def _records(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    data = np.zeros(count, COMPOUND)
    data["id"], data["xyz"] = np.arange(count), rng.random((count, 3))
    data["name"], data["ok"] = b"abc", rng.random(count) > 0.5
    return data


def dataset_names(path: Path) -> list[str]:
    """Return the names of all datasets of a file."""
    names: list[str] = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def random_selection(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return what h5py and h5pyd can both be indexed with: slices, indices, at most one list."""
    parts: list[Any] = []
    listed = False
    for length in shape:
        kind = rng.integers(0, 5)
        if kind == 0:
            parts.append(int(rng.integers(0, length)))
        elif kind == 1 and not listed:
            listed = True
            count = int(rng.integers(1, min(6, length) + 1))
            parts.append(sorted(rng.choice(length, count, replace=False).tolist()))
        else:
            first = int(rng.integers(0, length))
            last = int(rng.integers(first + 1, length + 1))
            parts.append(slice(first, last, int(rng.integers(1, 4)) if kind == 2 else 1))
    return tuple(parts)
