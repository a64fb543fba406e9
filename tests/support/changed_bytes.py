"""Damage to a file: some of its bytes become others."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def change_bytes(path: Path, rng: np.random.Generator, count: int = 10) -> None:
    """Change so many bytes of a file, at places and into values that are drawn; an empty file gets one."""
    data = bytearray(path.read_bytes() or b"\0")
    for place in rng.integers(0, len(data), count):
        data[place] ^= int(rng.integers(1, 256))
    path.write_bytes(data)
