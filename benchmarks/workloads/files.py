"""The workload `files`: HDF5 files of three kinds, to import and export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

COLUMNS = 4096
CHUNK = (256, 1024)  # 2 MiB of int64, which is not enlarged
GENES = 10_000
DENSITY = 0.1


@dataclass(frozen=True)
class FileCase:
    """A file with about `size` bytes of values before filters, in the dataset or group `X`; `make` writes it.

    `layouts` are the layouts of its exports.
    """

    name: str
    size: int
    make: Callable[[Path, int], None]
    layouts: tuple[str, ...] = ("stock",)


def contiguous(path: Path, size: int) -> None:
    """Write a contiguous dataset of float64 noise."""
    rng = np.random.default_rng(11)
    rows = max(1, size // (8 * COLUMNS))
    with h5py.File(path, "w") as file:
        made = file.create_dataset("X", (rows, COLUMNS), "<f8")
        for first in range(0, rows, 512):
            made[first : first + 512] = rng.normal(size=(min(512, rows - first), COLUMNS))


def deflated(path: Path, size: int) -> None:
    """Write int64 numbers of 20 bits, shuffled and deflated, in chunks that the server stores unchanged."""
    rng = np.random.default_rng(12)
    rows = max(1, size // (8 * COLUMNS * CHUNK[0])) * CHUNK[0]
    with h5py.File(path, "w") as file:
        made = file.create_dataset("X", (rows, COLUMNS), "<i8", chunks=CHUNK, shuffle=True, compression=4)
        for first in range(0, rows, CHUNK[0]):
            made[first : first + CHUNK[0]] = rng.integers(0, 2**20, (CHUNK[0], COLUMNS))


def sparse(path: Path, size: int) -> None:
    """Write a CSR matrix in AnnData's form, with a tenth of the elements of a dense dataset of `size` bytes."""
    rng = np.random.default_rng(13)
    rows = max(1, size // (5 * GENES))  # dense float32, and a byte per element for the defined set
    count = int(GENES * DENSITY)
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        group.attrs["shape"] = np.array([rows, GENES])
        group["indptr"] = np.arange(rows + 1, dtype="<i4") * count
        data = group.create_dataset("data", (rows * count,), "<f4")
        indices = group.create_dataset("indices", (rows * count,), "<i4")
        for row in range(rows):
            part = slice(row * count, (row + 1) * count)
            indices[part] = np.sort(rng.choice(GENES, count, replace=False))
            data[part] = rng.integers(1, 100, count)


def files(quick: bool = False) -> tuple[FileCase, ...]:
    """Return the cases at full size, 1 GB each, or small."""
    size = 16 * 10**6 if quick else 10**9
    return (
        FileCase("contiguous", size, contiguous),
        FileCase("shuffle and deflate", size, deflated),
        FileCase("sparse", size, sparse, ("stock", "structured")),
    )
