"""The adapters among the examples: what LCLStreamer pushes, bluesky's documents, and what Tiled asks an adapter."""

from __future__ import annotations

import io
import json
import sys
import threading
import types
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import event_model
import h5py
import hdf5plugin
import numpy as np
import pytest
import scipy.sparse as sp
import zmq

import hsparse

EXAMPLES = Path(__file__).parents[2] / "examples"
NUMBERS = count()


@pytest.fixture
def address(embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(EXAMPLES)
    return f"{embedded_url}/adapter-{next(NUMBERS)}.h5"


# --- LCLStreamer ----------------------------------------------------------------------------------


def batch(frames: np.ndarray[Any, Any], first: int) -> bytes:
    """Return a batch as LCLStreamer's HDF5BinarySerializer makes it: a chunk for each event, maybe compressed."""
    stamps = np.arange(first, first + len(frames), dtype="f8")
    blocks = {"timestamp": stamps, "data/detector": frames, "run": np.full(len(frames), "r7", "S4")}
    message = io.BytesIO()
    with h5py.File(message, "w") as file:
        for name, block in blocks.items():
            filters = hdf5plugin.Bitshuffle(cname="lz4") if block.ndim > 1 else {}
            chunks = (1, *block[0].shape)
            file.create_dataset(name, data=block, chunks=chunks, **filters)
    return message.getvalue()


def test_batches_of_lclstreamer_become_sparse_frames(address: str, tmp_path: Path) -> None:
    import from_lclstreamer as example  # a program: it is not on the path but here

    frames = np.random.default_rng(1).poisson(0.01, (9, 40, 300)).astype("u2")
    with hsparse.open(address, "w") as file:  # a receiver that was stopped in the middle of a batch
        example.append(file, batch(frames[:2], 0))
        with file["data/detector"].appender() as appender:
            appender.append(np.ones((40, 300), "u2"))
    place = f"ipc://{tmp_path}/stream"
    receiver = threading.Thread(target=example.receive, args=(place, address, 2))
    receiver.start()
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(place)
        socket.send(batch(frames[2:5], 2))
        socket.send(batch(frames[5:], 5))
        receiver.join(60)
    with hsparse.open(address) as file:
        detector = file["data/detector"]
        assert isinstance(detector, hsparse.SparseDataset)
        assert detector.nnz == np.count_nonzero(frames)
        np.testing.assert_array_equal(detector.to_numpy(), frames)
        assert file["timestamp"][:].tolist() == list(range(9))
        assert file["run"][:].astype("U").tolist() == ["r7"] * 9


# --- bluesky --------------------------------------------------------------------------------------


def test_runs_of_bluesky_are_groups_whose_datasets_grow(address: str) -> None:
    from from_bluesky import Writer

    images = np.random.default_rng(2).poisson(0.05, (5, 30, 20)).astype("<u2")
    with hsparse.open(address, "w") as file:
        write = Writer(file)
        run = event_model.compose_run(metadata={"plan_name": "count", "sample": "LaB6"})
        write("start", run.start_doc)
        keys = {
            "image": {"source": "sim", "dtype": "array", "dtype_numpy": "<u2", "shape": [30, 20]},
            "theta": {"source": "motor", "dtype": "number", "shape": [], "units": "deg"},
            "state": {"source": "shutter", "dtype": "string", "shape": []},
        }
        stream = run.compose_descriptor(name="primary", data_keys=keys)
        write("descriptor", stream.descriptor_doc)
        events = [
            stream.compose_event(
                data={"image": image, "theta": 0.5 * number, "state": "open"},
                timestamps=dict.fromkeys(keys, float(number)),
            )
            for number, image in enumerate(images)
        ]
        write("event", events[0])
        write("event_page", event_model.pack_event_page(*events[1:]))
        write("stop", run.compose_stop())
    with hsparse.open(address) as file:
        (group,) = file.values()
        assert json.loads(group.attrs["start"])["sample"] == "LaB6"
        assert group.attrs["exit_status"] == "success"
        image = group["primary/image"]
        assert image.nnz == np.count_nonzero(images)
        np.testing.assert_array_equal(image.to_numpy(), images)
        assert group["primary/theta"][:].tolist() == [0, 0.5, 1, 1.5, 2]
        assert group["primary/theta"].attrs["units"] == "deg"
        assert group["primary/state"][:].tolist() == ["open"] * 5
        assert group["primary/time"][:].tolist() == [event["time"] for event in events]


def test_a_stream_with_data_in_files_is_refused(address: str) -> None:
    from from_bluesky import Writer

    with hsparse.open(address, "w") as file:
        write = Writer(file)
        run = event_model.compose_run()
        write("start", run.start_doc)
        keys = {"image": {"source": "sim", "dtype": "array", "shape": [30, 20], "external": "STREAM:"}}
        stream = run.compose_descriptor(name="primary", data_keys=keys)
        with pytest.raises(ValueError, match="primary has data in other files"):
            write("descriptor", stream.descriptor_doc)


# --- Tiled ----------------------------------------------------------------------------------------


class Adapter:
    """What Tiled's adapters begin with: a structure and metadata."""

    def __init__(self, structure: Any, *, metadata: Any = None) -> None:
        self.structure = lambda: structure
        self.metadata = lambda: metadata


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiled, or where it is not installed (it wants pydantic-settings<2.12) the names that adapters use of it."""
    if find_spec("tiled") is None:
        array = types.SimpleNamespace(from_array=lambda values: Adapter(values.shape))
        names: dict[str, dict[str, Any]] = {
            "adapters.array": {"ArrayAdapter": array},
            "adapters.mapping": {"MapAdapter": lambda members, metadata: members},
            "adapters.sparse": {"SparseAdapter": Adapter},
            "structures.array": {"BuiltinDtype": types.SimpleNamespace(from_numpy_dtype=lambda dtype: dtype)},
            "structures.sparse": {"COOStructure": lambda **parts: types.SimpleNamespace(**parts)},
        }
        for name in ("", ".adapters", ".structures"):
            monkeypatch.setitem(sys.modules, f"tiled{name}", types.ModuleType(f"tiled{name}"))
        for name, content in names.items():
            module = types.ModuleType(f"tiled.{name}")
            module.__dict__.update(content)
            monkeypatch.setitem(sys.modules, module.__name__, module)
    yield
    sys.modules.pop("tiled_adapter", None)


def test_tiled_reads_sparse_datasets_whole_and_by_blocks(address: str, tiled: None) -> None:
    from tiled_adapter import open_tree

    values = sp.random_array((5, 3), density=0.6, format="csr", dtype="f4")
    with hsparse.open(address, "w") as file:
        x = file.create_sparse("group/X", (5, 3), "f4", (2, 2))
        x[:] = values
        x.attrs["unit"] = "counts"
        file["d"] = np.arange(4)
    tree = open_tree(address)
    adapter = tree["group"]["X"]
    assert adapter.metadata() == {"unit": "counts"}
    structure = adapter.structure()
    assert (structure.shape, structure.chunks) == ((5, 3), ((2, 2, 1), (2, 1)))
    dense = values.toarray()
    np.testing.assert_array_equal(adapter.read().todense(), dense)
    np.testing.assert_array_equal(adapter.read((slice(1, 4), slice(2))).todense(), dense[1:4, :2])
    np.testing.assert_array_equal(adapter.read_block((1, 1)).todense(), dense[2:4, 2:])
    np.testing.assert_array_equal(adapter.read_block((2, 0), (slice(None), 1)).todense(), dense[4:, 1])
    assert "d" in tree
