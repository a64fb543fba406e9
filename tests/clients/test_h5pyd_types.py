"""Every class of type through h5pyd 1.0.0: the same programs on an h5py file, written, reopened and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import h5pyd
import numpy as np
import pytest

from tests.support.endurance import repeats
from tests.support.programs.values import RandomTypes

Writer = Callable[[Any, Any], None]
Reader = Callable[[Any, Any], Any]
PROGRAMS: dict[str, tuple[Writer, Reader]] = {}


def program(name: str, read: Reader) -> Callable[[Writer], Writer]:
    """Register a function that writes a file, with one that reads it; both take the library and the file."""

    def register(write: Writer) -> Writer:
        PROGRAMS[name] = (write, read)
        return write

    return register


def text(lib: Any, kind: type = str) -> Any:
    return lib.special_dtype(vlen=kind)


def vlen(lib: Any, base: Any) -> Any:
    return lib.special_dtype(vlen=np.dtype(base))


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def plain(value: Any) -> Any:
    """Return values as lists, so that what two libraries read can be compared.

    h5pyd leaves 0 where an element of variable length has nothing in it, h5py gives an empty array.
    """
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, np.void) and value.dtype.names:
        return [
            _or_empty(value[name]) if value.dtype[name].kind == "O" else plain(value[name])
            for name in value.dtype.names
        ]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSU":
        return value.tolist()
    if isinstance(value, np.ndarray) and value.ndim:
        return [_or_empty(part) if value.dtype.kind == "O" else plain(part) for part in value]
    if isinstance(value, np.void | np.ndarray):
        return bytes(value) if isinstance(value, np.void) else plain(value[()])
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _or_empty(value: Any) -> Any:
    return [] if type(value) is int and value == 0 else plain(value)


def everything(lib: Any, file: Any) -> Any:
    return [file["x"][...], file["x"].shape]


@program("text of every length", lambda lib, file: [file["x"][...], file["x"].asstr()[0:2], file["x"][5]])
def _(lib: Any, file: Any) -> None:
    data = file.create_dataset("x", (6,), dtype=text(lib))
    data[0:3] = ["a", "hé", ""]
    data[4] = "x" * 5000


@program("text given at creation", everything)
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", data=np.array(["a", "ü", "日本"], dtype=object), dtype=text(lib))


@program("ascii text", lambda lib, file: [file["x"][1:3], lib.check_dtype(vlen=file["x"].dtype)])
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (4,), dtype=text(lib, bytes))[...] = [b"a", b"bb", b"", b"c"]


@program("scalar text", lambda lib, file: file["x"][()])
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", data="héllo")


@program(
    "chunked text by selections",
    lambda lib, file: [file["x"][[0, 3], 1:3], file["x"][2], file["x"][:, ::2], file["x"][...]],
)
def _(lib: Any, file: Any) -> None:
    data = file.create_dataset(
        "x", (4, 5), dtype=text(lib), chunks=(2, 2), maxshape=(None, 5), compression="gzip", shuffle=True
    )
    data[:, 1:4] = np.array([[f"{r}-{c}" for c in range(3)] for r in range(4)], object)
    data[::2, 0] = "one"


@program("text by points", lambda lib, file: [file["x"][[1, 4, 7]], file["x"][np.arange(9) % 3 == 0]])
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (9,), dtype=text(lib))[...] = objects(*map(str, range(9)))


@program("fixed text", lambda lib, file: [file["x"][()], file["y"][...]])
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", data=np.bytes_(b"ab"), dtype="S9")
    file.create_dataset("y", data=np.array([b"ab", b"cde"]))


@program("sequences of numbers", everything)
def _(lib: Any, file: Any) -> None:
    data = file.create_dataset("x", (3,), dtype=vlen(lib, "i4"))
    data[0] = [1, 2, 3]
    data[2] = [7]


@program("sequences in two dimensions", everything)
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (2, 2), dtype=vlen(lib, "f8"))[0, 1] = [1.5, 2]


@program("sequences of booleans", lambda lib, file: file["x"][0])
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (2,), dtype=vlen(lib, "?"))[0] = [True, False]


BASE = np.dtype([("a", "i4"), ("b", "f8")])


@program("sequences of compounds", everything)
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (2,), dtype=vlen(lib, BASE))[0] = np.array([(1, 2.0), (3, 4.0)], BASE)


def record(lib: Any) -> np.dtype[Any]:
    return np.dtype([("n", "i4"), ("s", text(lib)), ("v", vlen(lib, "f4")), ("t", "S3")])


@program("compounds with text and sequences", everything)
def _(lib: Any, file: Any) -> None:
    rows = np.zeros(3, record(lib))
    for place in range(3):
        rows[place] = (place, "ä" * place, np.arange(place, dtype="f4"), b"xyz")
    file.create_dataset("x", (3,), dtype=record(lib))[...] = rows


@program("compounds with text, never written", lambda lib, file: file["x"][...][["n", "s"]])
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (3,), dtype=np.dtype([("n", "i4"), ("s", text(lib))]))


@program("arrays of text in compounds", everything)
def _(lib: Any, file: Any) -> None:
    rows = np.zeros(2, np.dtype([("s", text(lib), (2,)), ("n", "i4")]))
    rows[0]["s"][:], rows[1]["s"][:], rows["n"] = ["a", "bb"], ["", "c"], 4
    file.create_dataset("x", data=rows)


@program("arrays", everything)
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (4,), dtype=np.dtype("(3,)i4"))[1:3] = np.arange(6).reshape(2, 3)


@program("enums", lambda lib, file: [file["x"][...], lib.check_dtype(enum=file["x"].dtype)])
def _(lib: Any, file: Any) -> None:
    kind = lib.special_dtype(enum=("i1", {"R": 0, "G": 1, "B": 2}))
    file.create_dataset("x", data=np.array([0, 1, 2]), dtype=kind)


@program("booleans", everything)
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", data=np.array([[True, False], [False, True]]))


@program("complex numbers", lambda lib, file: np.asarray(file["x"][...]).view("c16"))
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", data=np.array([1 + 2j, 3 - 1j]))


@program("opaque data", lambda lib, file: [file["x"][...], file["y"][...]["o"], file["y"][...]["n"]])
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", data=np.array([b"abc", b"d"], "V4"))
    rows = np.zeros(2, np.dtype([("o", "V3"), ("n", "i4")]))
    rows["o"], rows["n"] = np.array([b"abc", b"d"], "V3"), 3
    file.create_dataset("y", data=rows)


@program(
    "references",
    lambda lib, file: [
        file[file["x"][0]].name,
        file[file["x"][1]][...],
        file[file["y"][0]["r"]][...],
        file["y"][0]["n"],
        file[file.attrs["r"]][...],
    ],
)
def _(lib: Any, file: Any) -> None:
    group, target = file.create_group("g"), file.create_dataset("t", data=np.arange(4))
    kind = lib.special_dtype(ref=lib.Reference)
    data = file.create_dataset("x", (2,), dtype=kind)
    data[0], data[1] = group.ref, target.ref
    file.create_dataset("y", (1,), dtype=np.dtype([("r", kind), ("n", "i4")]))[0] = (target.ref, 3)
    file.attrs["r"] = target.ref


@program(
    "region references",
    lambda lib, file: [file["t"][file["x"][0]], file["t"][file.attrs["r"]], file["x"].shape],
)
def _(lib: Any, file: Any) -> None:
    target = file.create_dataset("t", data=np.arange(40).reshape(4, 10))
    data = file.create_dataset("x", (2,), dtype=lib.special_dtype(ref=lib.RegionReference))
    data[0] = target.regionref[1:3, 2:5]
    file.attrs["r"] = target.regionref[0:2, 0:1]


@program(
    "fill values", lambda lib, file: [file["x"][...], file["y"][...], file["z"][...], file["y"].fillvalue]
)
def _(lib: Any, file: Any) -> None:
    file.create_dataset("x", (3,), dtype=text(lib), fillvalue="fill")
    file.create_dataset("y", (3,), dtype=BASE, fillvalue=np.array((3, 2.5), BASE)[()])
    file.create_dataset("z", (3,), dtype="S4", fillvalue=b"ab")


@program("no elements, and some later", everything)
def _(lib: Any, file: Any) -> None:
    data = file.create_dataset("x", (0, 3), dtype=text(lib), maxshape=(None, 3), chunks=(1, 2))
    data.resize((3, 3))
    file.flush()
    data[1] = ["a", "b", "c"]
    data.resize((2, 3))
    file.flush()


@program("committed types", lambda lib, file: [file["x"][...], file["kind"].dtype.names])
def _(lib: Any, file: Any) -> None:
    file["kind"] = np.dtype([("n", "i4"), ("s", text(lib))])
    file.flush()
    file.create_dataset("x", (2,), dtype=file["kind"])[0] = (1, "z")


@program(
    "attributes", lambda lib, file: {name: file.attrs[name] for name in sorted(file.attrs) if name != "none"}
)
def _(lib: Any, file: Any) -> None:
    file.attrs["text"], file.attrs["bytes"], file.attrs["yes"] = "é", np.bytes_(b"xyz"), True
    file.attrs["complex"], file.attrs["nan"] = 1 + 2j, np.array([1.5, np.inf])
    file.attrs["words"] = np.array(["a", "bc"], object).astype(text(lib))
    file.attrs.create("none", lib.Empty("f4"))
    lists = np.empty(2, vlen(lib, "i4"))
    lists[:] = [np.array([1, 2], "i4"), np.array([3], "i4")]
    file.attrs.create("lists", lists, dtype=vlen(lib, "i4"))
    kind = lib.special_dtype(enum=("i1", {"R": 0, "G": 1}))
    file.attrs.create("enum", np.array([1, 0]), dtype=kind)


@program("changes of one file at a time", everything)
def _(lib: Any, file: Any) -> None:
    data = file.create_dataset("x", (50, 3), dtype=text(lib), chunks=(7, 2), maxshape=(None, 3))
    rng = np.random.default_rng(3)
    for _ in range(20):
        first, last = sorted(rng.integers(0, 50, 2).tolist())
        words = [["w" * int(rng.integers(0, 30)) for _ in range(3)] for _ in range(last - first)]
        if words:
            data[first:last] = np.array(words, object)
        file.flush()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_program(endpoint: str, tmp_path: Path, name: str) -> None:
    write, read = PROGRAMS[name]
    path = "/home/admin/" + name.replace(" ", "-").replace(",", "") + ".h5"
    options = {"endpoint": endpoint, "username": "admin", "password": "any", "retries": 1}
    with h5py.File(tmp_path / "model.h5", "w") as file:
        write(h5py, file)
    with h5pyd.File(path, "w", **options) as file:
        write(h5pyd, file)
    with h5py.File(tmp_path / "model.h5") as file:
        expected = plain(read(h5py, file))
    with h5pyd.File(path, "r", **options) as file:
        assert plain(read(h5pyd, file)) == expected


def test_fields_are_written(endpoint: str) -> None:
    options = {"endpoint": endpoint, "username": "admin", "password": "any", "retries": 1}
    kind = np.dtype([("n", "i4"), ("s", text(h5pyd))])
    with h5pyd.File("/home/admin/fields.h5", "w", **options) as file:
        file.create_dataset("x", (3,), dtype=kind)
        file.flush()
        file["x"]["n"] = np.array([1, 2, 3], "i4")
        file.flush()
        file["x"]["s"] = np.array(["a", "bc", ""], object)
    with h5pyd.File("/home/admin/fields.h5", "r", **options) as file:
        assert plain(file["x"][...]) == [[1, b"a"], [2, b"bc"], [3, b""]]


def test_an_initializer(endpoint: str) -> None:
    options = {"endpoint": endpoint, "username": "admin", "password": "any", "retries": 1}
    with h5pyd.File("/home/admin/arange.h5", "w", **options) as file:
        opts = ("--start=10", "--step=2")
        file.create_dataset("x", (1000,), dtype="i4", initializer="arange", initializer_opts=opts)
    with h5pyd.File("/home/admin/arange.h5", "a", **options) as file:
        np.testing.assert_array_equal(file["x"][...], np.arange(10, 2010, 2))
        file["x"][5] = 0
    with h5pyd.File("/home/admin/arange.h5", "r", **options) as file:
        assert file["x"][4:7].tolist() == [18, 0, 22]


REFUSED_BY_H5PYD = ("bytearray index out of range", "cannot reshape array")
"""What h5pyd 1.0.0 says of values that it cannot pack: it reckons too few bytes, or takes one for several."""


def random_program(library: Any, opened: Callable[[str], Any], seed: int) -> Any:
    """Write two datasets of a random type, one in part, and return what is read of them."""
    types = RandomTypes(library, seed)
    dtype = types.draw()
    while library.check_dtype(vlen=dtype) not in (None, str, bytes):
        dtype = types.draw()  # arrays of sequences of one length are taken for arrays of numbers, by both
    shape = tuple(types.rng.integers(1, 6, types.rng.integers(1, 3)).tolist())
    data = types.values(dtype, shape)
    chunks = tuple(int(types.rng.integers(1, length + 1)) for length in shape)
    first, last = sorted(types.rng.integers(0, shape[0] + 1, 2).tolist())
    with opened("w") as file:
        file.create_dataset("whole", data=data)
        part = file.create_dataset("part", shape, dtype, chunks=chunks, compression="gzip", shuffle=True)
        if first < last:
            part[first:last] = data[first:last]
    with opened("r") as file:
        whole, part = file["whole"], file["part"]
        return plain([whole[...], part[...], whole[shape[0] - 1], part[::2]])


@pytest.mark.endurance
def test_random_types(endpoint: str, tmp_path: Path) -> None:
    options = {"endpoint": endpoint, "username": "admin", "password": "any", "retries": 1}
    compared, count = 0, repeats(40, short=12)
    for seed in range(count):
        path = f"/home/admin/random-{seed}.h5"
        expected = random_program(h5py, lambda mode: h5py.File(tmp_path / "model.h5", mode), seed)
        try:
            found = random_program(h5pyd, lambda mode, path=path: h5pyd.File(path, mode, **options), seed)
        except (IndexError, ValueError, OSError) as error:
            said = f"{error} {error.__context__}"
            assert any(text in said for text in REFUSED_BY_H5PYD), said
            continue
        assert found == expected, seed
        compared += 1
    assert compared > count * 5 // 8
