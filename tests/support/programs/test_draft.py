"""Random selections have the shapes that h5py finds, or are out of range."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from tests.support.programs.draft import draw_index


def test_the_shape_of_what_is_selected(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    beyond = 0
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number in range(300):
            shape = tuple(rng.integers(1, 6, rng.integers(0, 4)).tolist())
            data = file.create_dataset(f"{number}", shape, "f4")
            index, selected = draw_index(rng, shape)
            try:
                assert np.shape(data[index]) == selected
            except IndexError:
                beyond += 1
    assert 0 < beyond < 60
