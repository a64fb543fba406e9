"""NeXus files of events, as neutron sources write them, and their counts by plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

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


def replaced(name: str, change: Callable[[Any], Any]) -> Callable[[h5py.Group], None]:
    def run(group: h5py.Group) -> None:
        values = change(group[name][()])
        del group[name]
        group[name] = values

    return run


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
