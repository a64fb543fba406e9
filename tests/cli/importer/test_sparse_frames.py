"""Sparse frames of detectors, imported and compared with what fabio reads, and with the definition of the columns.

pyFAI's sparsify-Bragg writes numbers of pixels, ImageD11 rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import hsparse
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from tests.cli.importer.conftest import Import
from tests.cli.importer.test_command import Stopped, stop_after
from tests.cli.importer.test_file_formats import replaced
from tests.support.changed_bytes import change_bytes

FRAMES, ROWS, COLUMNS = 9, 40, 50
PYFAI, SCAN = "entry_0000/sparse_frames", "1.1/measurement/eiger"


def pixels(seed: int = 1) -> list[tuple[Any, Any]]:
    """Return numbers of pixels, and intensities, of each frame; one has none."""
    rng = np.random.default_rng(seed)
    counts = [0 if frame == 4 else int(rng.integers(1, 60)) for frame in range(FRAMES)]
    places = [np.sort(rng.choice(np.arange(250, ROWS * COLUMNS), count, replace=False)) for count in counts]
    return [(place, rng.integers(1, 5000, len(place)).astype("u2")) for place in places]


def pyfai(path: Path) -> Path:
    """Write what `pyFAI.io.sparse_frame.save_sparse` does, with a background of 0."""
    frames = pixels()
    mask = np.hypot(*np.ogrid[-20:20, -25:25]).astype("f4")
    mask[3:5] = np.nan
    with h5py.File(path, "w") as file:
        file.attrs["default"] = "entry_0000"
        entry = file.create_group("entry_0000")
        group = entry.create_group("sparse_frames")
        entry.attrs.update({"default": "sparse_frames", "pyFAI_sparse_frames": group.name})
        group.attrs.update({"NX_class": "NXdata", "signal": "background_avg"})
        group["frame_ptr"] = np.cumsum([0, *(len(index) for index, _ in frames)]).astype("u4")
        options = {"chunks": (50,), "compression": "gzip"}
        group.create_dataset("index", data=np.concatenate([one for one, _ in frames]).astype("u4"), **options)
        group.create_dataset("intensity", data=np.concatenate([one for _, one in frames]), **options)
        group["intensity"].attrs["unit"] = "counts"
        group["dummy"], group["script"], group["mask"] = 65535, "#python", mask
        group["radius"] = np.linspace(0, 40, 33).astype("f4")
        group["background_avg"] = group["background_std"] = np.zeros((FRAMES, 33), "f4")
    return path


def imaged11(path: Path) -> Path:
    """Write what ImageD11's segmenter does."""
    frames = pixels()
    with h5py.File(path, "w") as file:
        group = file.create_group(SCAN)
        group.attrs.update({"itype": "uint16", "nframes": FRAMES, "shape0": ROWS, "shape1": COLUMNS})
        index = np.concatenate([one for one, _ in frames])
        options = {"chunks": (50,), "maxshape": (None,), "compression": "lzf", "shuffle": True}
        group.create_dataset("row", data=(index // COLUMNS).astype("u2"), **options)
        group.create_dataset("col", data=(index % COLUMNS).astype("u2"), **options)
        group.create_dataset("intensity", data=np.concatenate([one for _, one in frames]), **options)
        group.create_dataset("labels", data=np.arange(len(index), dtype="i4"), **options)
        group["nnz"] = np.array([len(one) for one, _ in frames], "u4")
        group["rot"] = np.linspace(0, 1, FRAMES)
    return path


def imaged11_frame(path: Path) -> Path:
    """Write what `ImageD11.sparseframe.sparse_frame.to_hdf_group` does: one frame with its pixels."""
    index, intensity = pixels()[0]
    with h5py.File(path, "w") as file:
        group = file.create_group(SCAN)
        group.attrs.update({"itype": "uint16", "shape0": ROWS, "shape1": COLUMNS})
        group["row"], group["col"] = (index // COLUMNS).astype("u2"), (index % COLUMNS).astype("u2")
        group["intensity"], group["labels"] = intensity, np.arange(len(index), dtype="i4")
    return path


def stack(path: Path) -> Any:
    """Return the dense frames of a file of `imaged11`, as its columns define them."""
    with h5py.File(path) as file:
        group = file[SCAN]
        dense = np.zeros((FRAMES, ROWS, COLUMNS), group["intensity"].dtype)
        frames = np.repeat(np.arange(FRAMES), group["nnz"][()])
        dense[frames, group["row"][()], group["col"][()]] = group["intensity"][()]
    return dense


def numbered_stack(path: Path) -> Any:
    """Return the dense frames of a file of `pyfai`, without its background and mask."""
    with h5py.File(path) as file:
        group = file[PYFAI]
        dense = np.zeros((FRAMES, ROWS * COLUMNS), group["intensity"].dtype)
        dense[np.repeat(np.arange(FRAMES), np.diff(group["frame_ptr"][()])), group["index"][()]] = group[
            "intensity"
        ]
    return dense.reshape(FRAMES, ROWS, COLUMNS)


def fabio_stack(path: Path) -> Any:
    """Return the dense frames of a file of `pyfai`, as fabio reads them, with 0 where the mask is."""
    from fabio.sparseimage import SparseImage

    image = SparseImage().read(str(path))
    frames = np.array([image.getframe(number).data for number in range(image.nframes)])
    frames[:, ~np.isfinite(image.mask)] = 0
    image.close()
    return frames


def densified(file: hsparse.File, path: str) -> Any:
    found = file[path]
    assert isinstance(found, hsparse.SparseDataset)
    coords, values = found.read()
    dense = np.zeros(found.shape, values.dtype)
    dense[tuple(coords.T.astype(int))] = values
    return dense


def opened(connection: Connection) -> hsparse.File:
    return hsparse.open(f"{connection.url}{connection.domain}")


def test_frames_of_pyfai_are_what_fabio_reads(imported: Import, tmp_path: Path) -> None:
    path = pyfai(tmp_path / "frames.h5")
    with opened(imported(path)) as file:
        found = densified(file, f"{PYFAI}/intensity")
        expected = fabio_stack(path)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(found, expected)
        assert file[f"{PYFAI}/intensity"].attrs["unit"] == "counts"
        left = {"background_avg", "background_std", "dummy", "mask", "radius", "script", "intensity"}
        assert {*file[PYFAI]} == left
        assert file[PYFAI].attrs["signal"] == "background_avg"
    with opened(imported(path, "--as-is")) as file:
        assert file[f"{PYFAI}/index"].shape == file[f"{PYFAI}/intensity"].shape


def test_frames_of_imaged11(imported: Import, tmp_path: Path) -> None:
    path = imaged11(tmp_path / "frames.h5")
    with opened(imported(path, "--chunk", "2x40x50")) as file:
        assert np.array_equal(densified(file, f"{SCAN}/intensity"), stack(path))
        assert file[f"{SCAN}/intensity"].chunks == (2, ROWS, COLUMNS)
        labels, intensity = (densified(file, f"{SCAN}/{name}") for name in ("labels", "intensity"))
        assert labels.max() == np.count_nonzero(intensity) - 1
        assert {*file[SCAN]} == {"intensity", "labels", "rot"}


@pytest.mark.parametrize("count", [2, 5])
def test_an_import_that_was_stopped_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    path, domain = imaged11(tmp_path / "frames.h5"), f"/home/admin/stopped-frames-{count}.h5"
    with monkeypatch.context() as patch:
        stop_after(count, patch)
        with pytest.raises(Stopped):
            main(["import", str(path), domain, "--endpoint", url, "--keep"])
    assert main(["import", str(path), domain, "--endpoint", url, "--resume"]) == 0
    with hsparse.open(f"{url}{domain}") as file:
        assert np.array_equal(densified(file, f"{SCAN}/intensity"), stack(path))


def test_one_frame_of_imaged11(imported: Import, tmp_path: Path) -> None:
    index, intensity = pixels()[0]
    with opened(imported(imaged11_frame(tmp_path / "frame.h5"))) as file:
        found = densified(file, f"{SCAN}/intensity")
        assert found.shape == (ROWS, COLUMNS)
        assert np.array_equal(found.reshape(-1)[index], intensity)
        assert found.sum() == intensity.sum()
        assert {*file[SCAN]} == {"intensity", "labels"}


def test_columns_of_other_files(imported: Import, tmp_path: Path) -> None:
    """ImageD11 harvests the files of a scan as virtual datasets."""
    whole = imaged11(tmp_path / "whole.h5")
    with h5py.File(whole) as file, h5py.File(tmp_path / "master.h5", "w") as master:
        group = master.create_group(SCAN)
        group.attrs.update(file[SCAN].attrs)
        for name in ("row", "col", "intensity", "nnz"):
            layout = h5py.VirtualLayout(file[SCAN][name].shape, file[SCAN][name].dtype)
            layout[...] = h5py.VirtualSource(file[SCAN][name])
            group.create_virtual_dataset(name, layout)
    with opened(imported(tmp_path / "master.h5")) as file:
        assert np.array_equal(densified(file, f"{SCAN}/intensity"), stack(whole))


def changed(**attributes: int) -> Callable[[h5py.File], None]:
    return lambda file: file[SCAN].attrs.update(attributes)


def column(name: str, change: Callable[[Any], Any]) -> Callable[[h5py.File], None]:
    return replaced(f"{PYFAI if name in ('index', 'frame_ptr') else SCAN}/{name}", change)


DAMAGES: list[tuple[Callable[[Path], Path], Callable[[h5py.File], None], str]] = [
    (
        pyfai,
        column("index", lambda values: values + ROWS * COLUMNS),
        "An index of a pixel is beyond the frame",
    ),
    (pyfai, column("index", lambda values: values.astype("i8") - 1000), "An index of a pixel is negative"),
    (pyfai, column("index", lambda values: values * 0), "have the coordinates of another element"),
    (pyfai, column("index", lambda values: values / 2), "The indices of the matrix are no integers"),
    (pyfai, column("frame_ptr", lambda values: values + 1), "The 10 pointers do not ascend"),
    (pyfai, column("frame_ptr", lambda values: values[::-1].copy()), "The 10 pointers do not ascend"),
    (imaged11, column("row", lambda values: values + ROWS), f"/{SCAN}/"),
    (imaged11, column("col", lambda values: values[1:]), f"/{SCAN}/intensity: The frames have"),
    (imaged11, column("nnz", lambda values: values[1:]), "do not fit 9 frames"),
    (imaged11, column("nnz", lambda values: values + 1), "The 10 pointers do not ascend"),
    (imaged11, column("nnz", lambda values: values.astype("i8") - 9), "do not fit 9 frames"),
    (imaged11, changed(nframes=FRAMES + 1), "do not fit 10 frames"),
    (imaged11, changed(shape0=ROWS // 2), f"/{SCAN}/"),
    (imaged11, changed(shape0=1 << 62, shape1=1 << 62), f"/{SCAN}/"),
]


@pytest.mark.parametrize(("write", "damage", "said"), DAMAGES)
def test_columns_that_do_not_fit_are_refused(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Any, damage: Any, said: str
) -> None:
    path = write(tmp_path / "damaged.h5")
    with h5py.File(path, "r+") as file:
        damage(file)
    connection = imported(path, status=2)
    assert said in capsys.readouterr().err
    with pytest.raises(hsparse.NotFound):
        opened(connection)


@pytest.mark.parametrize("change", [{"nframes": 0}, {"shape0": -3}, {"shape1": 0}])
def test_what_only_looks_like_frames_stays(imported: Import, tmp_path: Path, change: dict[str, int]) -> None:
    path = imaged11(tmp_path / "other.h5")
    with h5py.File(path, "r+") as file:
        changed(**change)(file)
    with opened(imported(path)) as file:
        assert file[f"{SCAN}/row"].shape == file[f"{SCAN}/intensity"].shape


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("write", "read", "group"), [(pyfai, numbered_stack, PYFAI), (imaged11, stack, SCAN)]
)
def test_a_file_with_other_bytes_is_refused_or_read_as_others_do(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    write: Callable[[Path], Path],
    read: Callable[[Path], Any],
    group: str,
    seed: int,
) -> None:
    path = write(tmp_path / "damaged.h5")
    change_bytes(path, np.random.default_rng(seed))
    domain = f"/home/admin/{write.__name__}-{seed}-damaged.h5"
    if main(["import", str(path), domain, "--endpoint", url]) == 2:
        assert "/" in capsys.readouterr().err
        return
    try:
        expected = read(path)
    except (AttributeError, IndexError, KeyError, OSError, RuntimeError, TypeError, ValueError, UnicodeError):
        return  # others cannot read all of it
    with hsparse.open(f"{url}{domain}") as file:
        if f"{group}/intensity" in file and file[f"{group}/intensity"].shape == expected.shape:
            assert np.array_equal(densified(file, f"{group}/intensity"), expected)
