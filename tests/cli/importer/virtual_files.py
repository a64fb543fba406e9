"""Files with virtual datasets, by what is mapped; each is written by h5py into a directory with its sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

Writer = Callable[[Path], None]
U = h5s.UNLIMITED
Slab = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Start, count, stride and block."""


def source(folder: Path, name: str, data: Any, path: str = "data", **options: Any) -> Path:
    """Write a source."""
    with h5py.File(folder / name, "a") as file:
        file.create_dataset(path, data=data, **options)
    return folder / name


def numbers(number: int, *shape: int, dtype: str = "<i4") -> np.ndarray:
    return (np.arange(int(np.prod(shape))).reshape(shape) + 1000 * number).astype(dtype)


def virtual(
    folder: Path, layout: h5py.VirtualLayout, name: str = "v.h5", path: str = "v", fill: Any = None
) -> None:
    with h5py.File(folder / name, "a", libver=("earliest", "v110")) as file:
        file.create_virtual_dataset(path, layout, fillvalue=fill)


def space(dims: tuple[int, ...], maximum: tuple[int, ...], slab: Slab | None) -> h5s.SpaceID:
    made = h5s.create_simple(dims, maximum)
    if slab is not None:
        start, count, stride, block = slab
        made.select_hyperslab(start, count, stride, block)
    return made


def mapped(
    folder: Path,
    dims: tuple[int, ...],
    maximum: tuple[int, ...],
    *mappings: tuple[Slab | None, str, str, tuple[int, ...], tuple[int, ...], Slab | None],
    kind: Any = h5t.STD_I32LE,
    fill: int = -7,
    libver: Any = ("earliest", "v110"),
) -> None:
    """Write a virtual dataset by the functions of HDF5: selections without end, and any others."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_fill_value(np.array(fill, "<i4"))
    for to, file, path, extent, limits, of in mappings:
        plist.set_virtual(space(dims, maximum, to), file.encode(), path.encode(), space(extent, limits, of))
    with h5py.File(folder / "v.h5", "w", libver=libver) as opened:
        h5d.create(opened.id, b"v", kind, h5s.create_simple(dims, maximum), plist)


def several_files(folder: Path) -> None:
    layout = h5py.VirtualLayout((4, 6, 5), "<i4")
    for number in range(4):
        layout[number] = h5py.VirtualSource(
            source(folder, f"s{number}.h5", numbers(number, 6, 5)).name, "data", (6, 5)
        )
    virtual(folder, layout)


def missing_sources(folder: Path) -> None:
    layout = h5py.VirtualLayout((4, 6), "<i4")
    source(folder, "s0.h5", numbers(0, 6))
    layout[0] = h5py.VirtualSource("s0.h5", "data", (6,))
    layout[1] = h5py.VirtualSource("none.h5", "data", (6,))
    layout[2] = h5py.VirtualSource("s0.h5", "none", (6,))
    virtual(folder, layout, fill=-3)


def strided_blocks(folder: Path) -> None:
    source(folder, "s.h5", numbers(0, 20, 30))
    slab = ((1, 2), (3, 4), (6, 7), (2, 3))
    mapped(
        folder,
        (12, 40),
        (12, 40),
        (((0, 3), (6, 4), (2, 9), (1, 3)), "s.h5", "data", (20, 30), (20, 30), slab),
    )


def other_shapes(folder: Path) -> None:
    """Selections of as many elements, whose rows do not fit each other."""
    source(folder, "s.h5", numbers(0, 4, 9))
    mapped(
        folder,
        (8, 10),
        (8, 10),
        (((0, 0), (1, 1), (1, 1), (6, 6)), "s.h5", "data", (4, 9), (4, 9), None),
        (((6, 0), (2, 2), (1, 5), (1, 4)), "s.h5", "data", (4, 9), (4, 9), ((0, 1), (4, 2), (1, 3), (1, 2))),
    )


def one_source_twice(folder: Path) -> None:
    layout = h5py.VirtualLayout((6, 10), "<i4")
    found = h5py.VirtualSource(source(folder, "s.h5", numbers(0, 10)).name, "data", (10,))
    layout[0], layout[2, 3:8], layout[2, :2] = found, found[5:], found[0:2]
    layout[5, ::2] = found[::2]
    layout[4] = found
    layout[4, 2:5] = found[7:10]  # the later one of two
    virtual(folder, layout, fill=-3)


def nested(folder: Path) -> None:
    (folder / "sub").mkdir()
    source(folder / "sub", "s.h5", numbers(0, 8, 4))
    inner = h5py.VirtualLayout((4, 8), "<i4")
    for row in range(4):
        inner[row] = h5py.VirtualSource("s.h5", "data", (8, 4))[:, row]
    virtual(folder / "sub", inner, "inner.h5")
    outer = h5py.VirtualLayout((2, 8), "<i4")
    outer[:] = h5py.VirtualSource("sub/inner.h5", "v", (4, 8))[1:3]
    virtual(folder, outer)
    again = h5py.VirtualLayout((3,), "<i4")
    again[:] = h5py.VirtualSource(".", "v", (2, 8))[1, 2:5]
    virtual(folder, again, path="of the same file")


def scalar(folder: Path) -> None:
    source(folder, "s.h5", np.int32(42))
    mapped(folder, (1,), (1,), (None, "s.h5", "data", (1,), (1,), None))


def types(folder: Path) -> None:
    """Sources of other types than the virtual dataset."""
    floats = np.array([-1e30, -3.7, -1, 0, 2.5, 3.99, 300, 70000, 1e12, 1e30])
    source(folder, "s.h5", floats, "floats")
    source(folder, "s.h5", floats.astype(">f4"), "big")
    source(folder, "s.h5", np.array([-(2**40), -129, -1, 0, 1, 127, 255, 256, 2**31, 2**62], "<i8"), "ints")
    source(folder, "s.h5", np.array([0, 1, 2, 3, 4, 5, 2**63, 2**64 - 1, 8, 9], "<u8"), "unsigned")
    source(folder, "s.h5", np.array([b"abc", b"defgh", b"", b"x", b"12345678"] * 2, "S8"), "text")
    pairs = np.zeros(10, [("n", "<i8"), ("more", "<f4"), ("v", ">f8")])
    pairs["n"], pairs["more"], pairs["v"] = np.arange(10) * 2**30, 5, np.arange(10) / 4
    source(folder, "s.h5", pairs, "pairs")
    for number, (name, kind) in enumerate(
        [
            (name, kind)
            for name in ("floats", "big", "ints", "unsigned")
            for kind in ("<i1", ">u2", "<i4", "<u8", "<i8", "<f4", ">f8")
        ]
        + [("text", "S3"), ("text", "S20"), ("pairs", np.dtype([("v", "<f4"), ("n", "<i2")]))]
    ):
        layout = h5py.VirtualLayout((12,), kind)
        layout[1:11] = h5py.VirtualSource("s.h5", name, (10,))
        virtual(folder, layout, path=f"v{number}")


def texts(folder: Path) -> None:
    """Elements of variable length, whose bytes are on the heaps of their files."""
    kind = h5py.string_dtype()
    layout = h5py.VirtualLayout((2, 4), kind)
    for number in range(2):
        source(folder, f"s{number}.h5", np.array(["a", "", "größe", "x" * number * 100], object), dtype=kind)
        layout[number] = h5py.VirtualSource(f"s{number}.h5", "data", (4,), kind)
    virtual(folder, layout)


def arrays(folder: Path) -> None:
    """Elements that are arrays, of another base type than those of the source, and compounds with such."""
    pair = np.dtype([("a", "<i2", (2, 2)), ("b", "<f4")])
    values = np.zeros(6, pair)
    values["a"], values["b"] = np.arange(24).reshape(6, 2, 2), np.arange(6)
    source(folder, "s.h5", values, "pairs")
    with h5py.File(folder / "s.h5", "a") as file:
        file.create_dataset("arrays", (6,), np.dtype(("<i8", (3,))))[...] = numbers(0, 6, 3, dtype="<i8")
    for path, kind, dtype in (("arrays", "i4", np.dtype(("<i4", (3,)))), ("pairs", "pairs", pair)):
        plist = h5p.create(h5p.DATASET_CREATE)
        to = space((4, 5), (4, 5), ((1, 1), (2, 1), (2, 1), (1, 3)))
        plist.set_virtual(to, b"s.h5", path.encode(), h5s.create_simple((6,)))
        with h5py.File(folder / "v.h5", "a") as opened:
            h5d.create(opened.id, kind.encode(), h5t.py_create(dtype), h5s.create_simple((4, 5)), plist)


def filtered_chunks(folder: Path) -> None:
    layout = h5py.VirtualLayout((30, 40), "<i4", maxshape=(None, 40))
    source(folder, "s.h5", numbers(0, 20, 40), chunks=(5, 40), compression="gzip", shuffle=True)
    layout[:20] = h5py.VirtualSource("s.h5", "data", (20, 40))
    virtual(folder, layout)


def unlimited(folder: Path) -> None:
    """Two sources that grow, side by side; one is longer than when it was mapped, the other one ends earlier."""
    source(folder, "s0.h5", numbers(0, 7, 3), maxshape=(None, 3))
    source(folder, "s1.h5", numbers(1, 4, 3), maxshape=(None, 3))
    one = ((0, 0), (1, 1), (1, 1), (U, 3))
    mapped(
        folder,
        (2, 6),
        (U, 6),
        (one, "s0.h5", "data", (2, 3), (U, 3), one),
        (((0, 3), (1, 1), (1, 1), (U, 3)), "s1.h5", "data", (2, 3), (U, 3), one),
    )


def unlimited_strides(folder: Path) -> None:
    """Every third frame pair goes to one source, which ends inside a block."""
    source(folder, "s0.h5", numbers(0, 7, 3), maxshape=(None, 3))
    source(folder, "s1.h5", numbers(1, 9, 3), maxshape=(None, 3))
    whole = ((0, 0), (1, 1), (1, 1), (U, 3))
    mapped(
        folder,
        (4, 3),
        (U, 3),
        (((0, 0), (U, 1), (5, 1), (2, 3)), "s0.h5", "data", (2, 3), (U, 3), whole),
        (((2, 0), (U, 1), (5, 1), (1, 3)), "s1.h5", "data", (2, 3), (U, 3), ((1, 0), (U, 1), (2, 1), (1, 3))),
    )


def unlimited_without_sources(folder: Path) -> None:
    whole = ((0, 0), (1, 1), (1, 1), (U, 3))
    fixed = ((5, 0), (1, 1), (1, 1), (2, 3))
    source(folder, "s.h5", numbers(0, 2, 3))
    mapped(
        folder,
        (8, 3),
        (U, 3),
        (whole, "none.h5", "data", (2, 3), (U, 3), whole),
        (fixed, "s.h5", "data", (2, 3), (2, 3), None),
    )


def pattern_of_files(folder: Path) -> None:
    """Names with %b, and a percent sign; the fourth file is missing, so that the fifth one is beyond the end."""
    for number in (0, 1, 2, 4):
        source(folder, f"s%_{number}.h5", numbers(number, 2, 3))
    mapped(
        folder,
        (2, 3),
        (U, 3),
        (((0, 0), (U, 1), (2, 1), (2, 3)), "s%%_%b.h5", "data", (2, 3), (2, 3), None),
    )


def pattern_of_datasets(folder: Path) -> None:
    """Blocks with gaps between them, of datasets of one file."""
    for number in range(3):
        source(folder, "s.h5", numbers(number, 2, 3), f"g/data-x-{number}")
    mapped(
        folder,
        (2, 5),
        (U, 5),
        (((1, 1), (U, 1), (4, 1), (2, 3)), "s.h5", "/g/data-x-%b", (2, 3), (2, 3), None),
    )


def gap_beyond_the_end(folder: Path) -> None:
    """A limited mapping makes the extent longer than the files of a pattern: what lies between, and behind a gap."""
    for number in (0, 2):
        source(folder, f"s{number}.h5", numbers(number, 2, 3))
    fixed = ((9, 0), (1, 1), (1, 1), (1, 3))
    mapped(
        folder,
        (10, 3),
        (U, 3),
        (((0, 0), (U, 1), (2, 1), (2, 3)), "s%b.h5", "data", (2, 3), (2, 3), None),
        (fixed, "s0.h5", "data", (2, 3), (2, 3), ((0, 0), (1, 1), (1, 1), (1, 3))),
    )


def irregular(folder: Path) -> None:
    """Unions of blocks: rows in a list, and corners that are no product."""
    source(folder, "s.h5", numbers(0, 9, 7))
    layout = h5py.VirtualLayout((9, 7), "<i4")
    found = h5py.VirtualSource("s.h5", "data", (9, 7))
    layout[[0, 3, 4]] = found[[1, 2, 8]]
    virtual(folder, layout)
    to, of = (
        space((6, 8), (6, 8), ((0, 0), (1, 1), (1, 1), (2, 3))),
        space((9, 7), (9, 7), ((0, 0), (1, 1), (1, 1), (3, 2))),
    )
    to.select_hyperslab((1, 5), (1, 1), (1, 1), (3, 2), op=h5s.SELECT_OR)
    of.select_hyperslab((2, 4), (1, 1), (1, 1), (2, 3), op=h5s.SELECT_OR)
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_virtual(to, b"s.h5", b"data", of)
    with h5py.File(folder / "v.h5", "a") as opened:
        h5d.create(opened.id, b"corners", h5t.STD_I32LE, h5s.create_simple((6, 8)), plist)


def through_links(folder: Path) -> None:
    source(folder, "s.h5", numbers(0, 5), "g/data")
    with h5py.File(folder / "s.h5", "a") as file:
        file["soft"] = h5py.SoftLink("g")
        file["g/relative"] = h5py.SoftLink("data")
    with h5py.File(folder / "other.h5", "w") as file:
        file["away"] = h5py.ExternalLink("s.h5", "/soft/relative")
    layout = h5py.VirtualLayout((2, 5), "<i4")
    layout[0] = h5py.VirtualSource("s.h5", "soft/relative", (5,))
    layout[1] = h5py.VirtualSource("other.h5", "away", (5,))
    virtual(folder, layout)


def newest_bounds(folder: Path) -> None:
    source(folder, "s.h5", numbers(0, 20, 30))
    slab = ((1, 2), (3, 4), (6, 7), (2, 3))
    to = ((0, 3), (6, 4), (2, 9), (1, 3))
    mapped(folder, (12, 40), (12, 40), (to, "s.h5", "data", (20, 30), (20, 30), slab), libver="latest")


def shared_names(folder: Path) -> None:
    """Write the newest bounds, with which mappings share the names of files and datasets."""
    with h5py.File(folder / "v.h5", "w", libver="latest") as file:
        file["x"], file["y"] = numbers(0, 4), numbers(1, 4)
        layout = h5py.VirtualLayout((7, 4), "<i4")
        names = [(".", "x"), (".", "y"), ("longer.h5", "data"), ("longer.h5", "data"), (".", "x")]
        names += [("other.h5", "data"), ("longer.h5", "data")]
        for number, (name, path) in enumerate(names):
            layout[number] = h5py.VirtualSource(name, path, (4,))
        file.create_virtual_dataset("v", layout)
    source(folder, "longer.h5", numbers(2, 4))
    source(folder, "other.h5", numbers(3, 4))


VIRTUAL: dict[str, Writer] = {
    one.__name__.replace("_", " "): one
    for one in (
        several_files, missing_sources, strided_blocks, other_shapes, one_source_twice, nested, scalar,
        types, texts, arrays, filtered_chunks, unlimited, unlimited_strides, unlimited_without_sources,
        pattern_of_files, pattern_of_datasets, gap_beyond_the_end, irregular, through_links, newest_bounds,
        shared_names,
    )
}  # fmt: skip
