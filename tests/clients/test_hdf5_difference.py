"""The comparison that `test_hsload` trusts sees each way in which two files can differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.clients.hdf5_difference import differences

POINT = [("x", "<f4"), ("y", "<i2")]


def write(file: h5py.File, change: Callable[[h5py.File], None] | None = None, **changed: Any) -> None:
    """Write a file with something of everything; `changed` are options of its dataset."""
    options = {"dtype": "<i4", "maxshape": (None, 6), "chunks": (2, 3), "compression": "gzip", "fillvalue": 1}
    data = file.create_dataset("g/x", data=np.arange(12).reshape(2, 6), **options | changed)
    data.attrs["number"], data.attrs["text"] = 1.5, np.bytes_(b"abc")
    file["again"], file["soft"] = data, h5py.SoftLink("/g/x")
    file["away"], file["kind"] = h5py.ExternalLink("other.h5", "/x"), np.dtype(POINT)
    file["words"] = ["a", "b"]
    file["points"] = np.zeros(2, POINT)
    file["to"] = np.array([data.ref, file["g"].ref], h5py.ref_dtype)
    if change is not None:
        change(file)


def replace(name: str, value: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = value

    return change


def replace_attribute(name: str, value: Any) -> Callable[[h5py.File], None]:
    return lambda file: file["g/x"].attrs.__setitem__(name, value)


CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"dtype": ">i4"}, ["/again: type"]),
    ({"maxshape": (None, 7)}, ["/again: maxshape"]),
    ({"chunks": (1, 3)}, ["/again: chunks"]),
    ({"compression_opts": 9}, ["/again: filters"]),
    ({"shuffle": True}, ["/again: filters"]),
    ({"fillvalue": 2}, ["/again: fill value"]),
    ({"change": lambda file: file["g/x"].write_direct(np.zeros((2, 6), "<i4"))}, ["/again: values"]),
    ({"change": lambda file: file["g/x"].resize((3, 6))}, ["/again: extent"]),
    ({"change": lambda file: file["words"].__setitem__(1, "c")}, ["/words: values"]),
    ({"change": replace("words", h5py.Empty(h5py.string_dtype()))}, ["/words: extent", "/words: maxshape"]),
    (
        {"change": replace("points", np.zeros(2, np.dtype(POINT, align=True)))},
        ["/points: gaps", "/points: fill value"],
    ),
    ({"change": lambda file: file["to"].__setitem__(0, file["g"].ref)}, ["/to: values"]),
    ({"change": replace("kind", np.dtype("<i4"))}, ["/kind: type"]),
    ({"change": replace("kind", 1)}, ["/kind: a Dataset"]),
    ({"change": replace("soft", h5py.SoftLink("/g"))}, ["/soft: soft link to /g"]),
    ({"change": replace("away", h5py.ExternalLink("b.h5", "/x"))}, ["/away: external link to b.h5 /x"]),
    ({"change": lambda file: file.__delitem__("soft")}, ["/soft: missing"]),
    ({"change": lambda file: file.create_group("more")}, ["/more: added"]),
    ({"change": replace("kind", h5py.SoftLink("/g"))}, ["/kind: soft link to /g"]),
    ({"change": replace_attribute("number", 1.25)}, ["/again@number: values"]),
    ({"change": replace_attribute("number", np.float32(1.5))}, ["/again@number: type"]),
    ({"change": replace_attribute("number", [1.5])}, ["/again@number: extent", "/again@number: values"]),
    (
        {"change": replace_attribute("text", np.bytes_(b"abcd"))},
        ["/again@text: length of text", "/again@text: values"],
    ),
    ({"change": replace_attribute("text", "abc")}, ["/again@text: type", "/again@text: values"]),
    ({"change": replace_attribute("more", 1)}, ["/again@more: added"]),
]


@pytest.mark.parametrize(("changed", "expected"), CASES)
def test_a_change_is_found(tmp_path: Path, changed: dict[str, Any], expected: list[str]) -> None:
    for name, options in (("one.h5", {}), ("other.h5", changed)):
        with h5py.File(tmp_path / name, "w") as file:
            write(file, **options)
    assert differences(tmp_path / "one.h5", tmp_path / "other.h5") == expected


def test_a_copy_is_not_the_same_object(tmp_path: Path) -> None:
    for name in ("one.h5", "other.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            write(file)
            if name == "other.h5":
                del file["g/x"]
                file.copy("again", "g/x")
    assert differences(tmp_path / "one.h5", tmp_path / "other.h5") == [
        "/g/x: not the same object as elsewhere"
    ]


def test_creation_order(tmp_path: Path) -> None:
    for name, links in (("one.h5", "abc"), ("other.h5", "acb")):
        with h5py.File(tmp_path / name, "w", track_order=True) as file:
            for link in links:
                file.create_group(link)
    with h5py.File(tmp_path / "without.h5", "w") as file:
        for link in "abc":
            file.create_group(link)
    assert differences(tmp_path / "one.h5", tmp_path / "other.h5") == ["/: order"]
    assert "/: creation order" in differences(tmp_path / "one.h5", tmp_path / "without.h5")
