"""Events of NeXus and sparse frames of detectors, imported and compared with what numpy and fabio make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.cli.main import main
from hsparse.hdf5.importer import matrix_chunks
from tests.cli.importer.conftest import Import, Refused, opened
from tests.cli.importer.test_file_formats import replaced
from tests.support.changed_bytes import change_bytes

PULSES = 300
COLUMNS = {"event_id", "event_index", "event_time_offset", "event_time_zero"}


def write_bank(
    file: h5py.File, path: str, ids: Any, index: Any, pulses: int = PULSES, chunk: int | None = 500
) -> None:
    """Write events in the order of their pulses: `index` has the first one of each."""
    group = file.create_group(path)
    group.attrs["NX_class"] = "NXevent_data"
    options: dict[str, Any] = {"chunks": (chunk,), "compression": "gzip"} if chunk and len(ids) else {}
    group.create_dataset("event_id", data=ids, **options)
    group.create_dataset("event_time_offset", data=np.linspace(0, 1e4, len(ids), dtype="f4"), **options)
    group["event_time_offset"].attrs["units"] = "microsecond"
    group["event_index"], group["event_time_zero"] = index, np.arange(pulses) / 60
    group["event_time_zero"].attrs["offset"] = "2026-01-01T00:00:00Z"


def random_index(rng: np.random.Generator, count: int, pulses: int = PULSES) -> Any:
    """Return where pulses begin; some have no events."""
    index = np.sort(rng.integers(0, count + 1, pulses)).astype("u8")
    index[:3] = 0
    index[-2:] = count
    return index


def write_run(path: Path, far: int = 2**31 + 5) -> Path:
    """Write banks of several types, storages and forms of the index: one without events, one from pixel `far` on."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        file.create_group("entry").attrs["NX_class"] = "NXentry"
        ids = rng.integers(1000, 1200, 20_000)  # pixels are hit many times in a pulse
        index = random_index(rng, len(ids))
        write_bank(file, "entry/bank1_events", ids.astype("u4"), index)
        write_bank(
            file, "entry/bank2_events", ids.astype(">i4"), np.append(index, np.uint64(len(ids))), chunk=None
        )
        write_bank(file, "entry/bank3_events", ids[:0].astype("u4"), index * 0)
        ids = rng.integers(far, far + 900, 3_000)
        index = random_index(rng, len(ids))
        index[-4:] = len(ids)
        write_bank(file, "entry/bank4_events", ids, np.append(index.astype("i8"), [len(ids)] * 3))
        unset = np.where(index == len(ids), np.uint64(2**64 - 1), index)
        write_bank(file, "entry/monitor_events", np.zeros(len(ids), "u1"), unset, chunk=7)
        other = file.create_group("entry/other")
        other.attrs["NX_class"] = "NXdata"
        other["event_id"] = [1]
        detector = file.create_group("entry/instrument/bank1")
        for name in COLUMNS:
            detector[name] = file[f"entry/bank1_events/{name}"]
    return path


BANKS = [f"entry/{name}_events" for name in ("bank1", "bank2", "bank4", "monitor")]


def counted(path: Path, bank: str) -> sp.csr_matrix:
    """Return the counts of a bank, pulses x pixels."""
    with h5py.File(path) as file:
        group = file[bank]
        ids = group["event_id"][()].astype("i8")
        pulses = len(group["event_time_zero"])
        begins = group["event_index"][:pulses].astype("i8")
    begins[begins < 0] = len(ids)
    rows = np.searchsorted(begins, np.arange(len(ids)), "right") - 1
    shape = pulses, int(ids.max()) + 1
    return sp.coo_matrix((np.ones(len(ids), "u4"), (rows, ids)), shape).tocsr()


def without(name: str) -> Callable[[h5py.Group], None]:
    return lambda group: group.__delitem__(name)


def set_at(place: int, value: int) -> Callable[[Any], Any]:
    def run(values: Any) -> Any:
        values = values.astype("i8")
        values[place] = value
        return values

    return run


DAMAGES: dict[str, tuple[Callable[[h5py.Group], None], str]] = {
    "no index": (without("event_index"), "no column of numbers event_index"),
    "no times": (without("event_time_zero"), "no column of numbers event_time_zero"),
    "index of reals": (
        replaced("event_index", lambda x: x.astype("f8")),
        "pointers of the matrix are no integers",
    ),
    "index of two dimensions": (
        replaced("event_index", lambda x: x.reshape(2, -1)),
        "no column of numbers event_index",
    ),
    "short index": (replaced("event_index", lambda x: x[:-1]), "event_index has 299 entries"),
    "index beyond": (
        replaced("event_index", lambda x: np.append(x, np.uint64(7))),
        "entries beyond must be 20000",
    ),
    "index that falls": (replaced("event_index", lambda x: x[::-1]), "pointers do not ascend from 0"),
    "index that begins late": (replaced("event_index", set_at(0, 1)), "pointers do not ascend from 0"),
    "index after the end": (replaced("event_index", set_at(-1, 20_001)), "pointers do not ascend from 0"),
    "negative index": (replaced("event_index", set_at(5, -9)), "pointers do not ascend from 0"),
    "negative pixel": (replaced("event_id", set_at(77, -1)), "Its event_id -1 is negative"),
    "pixels of reals": (replaced("event_id", lambda x: x / 2), "indices of the matrix are no integers"),
    "texts": (replaced("event_id", lambda x: x.astype("S4")), "no column of numbers event_id"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("events") / "run.nxs")


def assert_counts(file: hsparse.File, path: Path, bank: str, name: str = "counts") -> None:
    found, expected = file[f"{bank}/{name}"], counted(path, bank)
    assert isinstance(found, hsparse.SparseDataset)
    assert (found.shape, found.dtype) == (expected.shape, np.dtype("u4"))
    coords, values = found.read()
    rows, columns = coords.T.astype("i8")
    assert (sp.coo_matrix((values, (rows, columns)), expected.shape).tocsr() != expected).nnz == 0
    assert len(values) == expected.nnz


def assert_columns(file: hsparse.File, path: Path, bank: str, names: Any = COLUMNS) -> None:
    with h5py.File(path) as plain:
        for name in {*names} & {*plain[bank]}:
            assert np.array_equal(file[f"{bank}/{name}"][...], plain[f"{bank}/{name}"][()]), name


def test_counts_are_beside_the_columns(imported: Import, run: Path) -> None:
    with opened(imported(run, "--events")) as file:
        for bank in BANKS:
            assert {*file[bank]} == COLUMNS | {"counts"}
            assert_counts(file, run, bank)
            assert_columns(file, run, bank)
        assert {*file["entry/bank3_events"]} == COLUMNS
        assert {*file["entry/other"]} == {"event_id"}
        assert {*file["entry/instrument/bank1"]} == COLUMNS
        expected = counted(run, BANKS[0])
        pixels = file[BANKS[0]]["counts"][:, 1005:1010]
        assert np.array_equal(sp.csr_matrix(pixels).toarray(), expected[:, 1005:1010].toarray())


def test_without_the_flag_the_file_is_as_it_was(imported: Import, run: Path) -> None:
    with opened(imported(run)) as file:
        assert {*file[BANKS[0]]} == COLUMNS


def test_no_dataset_is_hidden(imported: Import, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.nxs"
    path.write_bytes(run.read_bytes())
    with h5py.File(path, "r+") as file:
        file[BANKS[0]]["counts"] = 5
        file[BANKS[0]]["counts_"] = h5py.SoftLink("/nowhere")
    with opened(imported(path, "--events")) as found:
        assert found[BANKS[0]]["counts"][()] == 5
        assert_counts(found, path, BANKS[0], "counts__")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks whose events are read in many pieces."""
    for name in ("ELEMENTS_AT_ONCE", "MAX_CUT_ELEMENTS", "MAX_ROWS_ELEMENTS"):
        monkeypatch.setattr(matrix_chunks, name, 700)
    monkeypatch.setattr(matrix_chunks, "MAX_WAITING_BYTES", 8000)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("events") / "near.nxs", far=70)


@pytest.mark.parametrize("chunk", ["300x1300", "70x300", "10x50"])
def test_chunks_of_any_shape(imported: Import, near: Path, small_pieces: None, chunk: str) -> None:
    with opened(imported(near, "--events", "--chunk", chunk)) as file:
        for bank in BANKS:
            assert_counts(file, near, bank)


@pytest.mark.parametrize("count", [4, 9])
def test_an_import_of_events_that_was_stopped_goes_on(resumed: Import, near: Path, count: int) -> None:
    with opened(resumed(near, count, "--events", "--chunk", "50x64")) as file:
        for bank in BANKS:
            assert_counts(file, near, bank)


@pytest.mark.parametrize("name", DAMAGES)
def test_of_damaged_events_the_columns_are_imported(
    imported: Import, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    damage, said = DAMAGES[name]
    path = tmp_path / "run.nxs"
    path.write_bytes(run.read_bytes())
    with h5py.File(path, "r+") as file:
        damage(file[BANKS[0]])
        left = {*file[BANKS[0]]}
    with opened(imported(path, "--events", status=3)) as found:
        message = capsys.readouterr().err
        assert f"/{BANKS[0]}/counts: " in message
        assert said in message
        assert {*found[BANKS[0]]} == left | {"counts"}
        assert said in found[BANKS[0]].get("counts", getlink=True).filename
        assert_columns(found, path, BANKS[0])
        assert_counts(found, path, BANKS[1])


def test_a_strict_import_refuses_damaged_events(refused: Refused, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.nxs"
    path.write_bytes(run.read_bytes())
    with h5py.File(path, "r+") as file:
        DAMAGES["no index"][0](file[BANKS[0]])
    assert f"/{BANKS[0]}/counts: " in refused(path, "--events", "--strict")


def test_what_the_flag_is_not_for(refused: Refused, run: Path, tmp_path: Path) -> None:
    assert "leave --events out" in refused(run, "--events", "--as-is")
    matrix = tmp_path / "m.mtx"
    matrix.write_text("%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 1\n")
    assert "--events is for NeXus files" in refused(matrix, "--events")


FRAMES, ROWS, WIDTH = 9, 40, 50
PYFAI, SCAN = "entry_0000/sparse_frames", "1.1/measurement/eiger"


def pixels(seed: int = 1) -> list[tuple[Any, Any]]:
    """Return numbers of pixels, and intensities, of each frame; one has none."""
    rng = np.random.default_rng(seed)
    counts = [0 if frame == 4 else int(rng.integers(1, 60)) for frame in range(FRAMES)]
    places = [np.sort(rng.choice(np.arange(250, ROWS * WIDTH), count, replace=False)) for count in counts]
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
        group.attrs.update({"itype": "uint16", "nframes": FRAMES, "shape0": ROWS, "shape1": WIDTH})
        index = np.concatenate([one for one, _ in frames])
        options = {"chunks": (50,), "maxshape": (None,), "compression": "lzf", "shuffle": True}
        group.create_dataset("row", data=(index // WIDTH).astype("u2"), **options)
        group.create_dataset("col", data=(index % WIDTH).astype("u2"), **options)
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
        group.attrs.update({"itype": "uint16", "shape0": ROWS, "shape1": WIDTH})
        group["row"], group["col"] = (
            (index // WIDTH).astype("u2"),
            (index % WIDTH).astype("u2"),
        )
        group["intensity"], group["labels"] = intensity, np.arange(len(index), dtype="i4")
    return path


def stack(path: Path) -> Any:
    """Return the dense frames of a file of `imaged11`, as its columns define them."""
    with h5py.File(path) as file:
        group = file[SCAN]
        dense = np.zeros((FRAMES, ROWS, WIDTH), group["intensity"].dtype)
        frames = np.repeat(np.arange(FRAMES), group["nnz"][()])
        dense[frames, group["row"][()], group["col"][()]] = group["intensity"][()]
    return dense


def numbered_stack(path: Path) -> Any:
    """Return the dense frames of a file of `pyfai`, without its background and mask."""
    with h5py.File(path) as file:
        group = file[PYFAI]
        dense = np.zeros((FRAMES, ROWS * WIDTH), group["intensity"].dtype)
        dense[np.repeat(np.arange(FRAMES), np.diff(group["frame_ptr"][()])), group["index"][()]] = group[
            "intensity"
        ]
    return dense.reshape(FRAMES, ROWS, WIDTH)


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
        assert file[f"{SCAN}/intensity"].chunks == (2, ROWS, WIDTH)
        labels, intensity = (densified(file, f"{SCAN}/{name}") for name in ("labels", "intensity"))
        assert labels.max() == np.count_nonzero(intensity) - 1
        assert {*file[SCAN]} == {"intensity", "labels", "rot"}


@pytest.mark.parametrize("count", [2, 5])
def test_an_import_of_frames_that_was_stopped_goes_on(resumed: Import, tmp_path: Path, count: int) -> None:
    path = imaged11(tmp_path / "frames.h5")
    with opened(resumed(path, count)) as file:
        assert np.array_equal(densified(file, f"{SCAN}/intensity"), stack(path))


def test_one_frame_of_imaged11(imported: Import, tmp_path: Path) -> None:
    index, intensity = pixels()[0]
    with opened(imported(imaged11_frame(tmp_path / "frame.h5"))) as file:
        found = densified(file, f"{SCAN}/intensity")
        assert found.shape == (ROWS, WIDTH)
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


DAMAGED_FRAMES: list[tuple[Callable[[Path], Path], Callable[[h5py.File], None], str]] = [
    (
        pyfai,
        column("index", lambda values: values + ROWS * WIDTH),
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


@pytest.mark.parametrize(("write", "damage", "said"), DAMAGED_FRAMES)
def test_columns_that_do_not_fit_are_refused(
    refused: Refused, tmp_path: Path, write: Any, damage: Any, said: str
) -> None:
    path = write(tmp_path / "damaged.h5")
    with h5py.File(path, "r+") as file:
        damage(file)
    assert said in refused(path)


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
