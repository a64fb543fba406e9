"""Sources as files, the files that a file names, objects found by paths, and scattered elements read as boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import SEEK_CUR, SEEK_END
from math import prod
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Conflict, Corrupt, Forbidden, HsparseError, NotFound, Unsupported
from hsparse.format.plan.virtual_plan import MappedPart
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.importer import block_cache, source_files
from hsparse.hdf5.importer import source_dataset as source_parts
from hsparse.hdf5.importer.block_cache import BlockCache
from hsparse.hdf5.importer.source import InputFile, LocalSource
from hsparse.hdf5.importer.source_dataset import MAX_DEPTH, FoundObject, SourceFile, find_object, read_part
from hsparse.hdf5.importer.source_files import NO_FILES, SharedSource, SourceFiles


def open_local(location: str) -> InputFile:
    return LocalSource(Path(location))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two directories with files, and links from one to the other."""
    for folder in ("run/sub", "away"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "s.h5").write_bytes(b"one")
    (tmp_path / "run" / "beside.h5").write_bytes(b"two")
    (tmp_path / "run" / "link.h5").symlink_to(tmp_path / "away" / "s.h5")
    (tmp_path / "run" / "inner.h5").symlink_to(tmp_path / "run" / "sub" / "s.h5")
    (tmp_path / "run" / "folder").symlink_to(tmp_path / "away")
    return tmp_path


def files_of(root: Path, *places: str) -> tuple[SourceFiles, str]:
    main = str(root / "run" / "main.h5")
    return SourceFiles(main, open_local, places), main


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("beside.h5", "run/beside.h5"), ("./sub/../beside.h5", "run/beside.h5"),
        ("sub/s.h5", "run/sub/s.h5"), ("inner.h5", "run/sub/s.h5"),
        ("{root}/run/beside.h5", "run/beside.h5"), ("/nowhere/beside.h5", "run/beside.h5"),
        ("{root}/away/beside.h5", "run/beside.h5"), ("none.h5", None), ("sub/none.h5", None),
        ("{root}/run/none.h5", None),
    ],
)  # fmt: skip
def test_where_files_are(root: Path, name: str, found: str | None) -> None:
    files, main = files_of(root)
    assert files.find(name.format(root=root), main) == (found and str(root / found))


@pytest.mark.parametrize(
    "name",
    [
        "../away/s.h5",
        "{root}/away/s.h5",
        "{root}/away/none.h5",
        "link.h5",
        "folder/s.h5",
        "sub/../../away/s.h5",
        "/etc/passwd",
    ],
)
def test_files_outside_of_the_places_are_refused(root: Path, name: str) -> None:
    files, main = files_of(root)
    with pytest.raises(Forbidden, match=r"outside of the places .* \(--sources\)"):
        files.find(name.format(root=root), main)


def test_hidden_files_are_read_in_named_places_only(root: Path) -> None:
    for name in ("run/.key", "run/.keys/s.h5", "run/sub/.keys/s.h5"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"secret")
        files, main = files_of(root)
        with pytest.raises(Forbidden):
            files.find(name.removeprefix("run/"), main)
        files, main = files_of(root, str(root / "run"))
        assert files.find(name.removeprefix("run/"), main) == str(root / name)
    hidden = SourceFiles(str(root / "run" / ".keys" / "main.h5"), open_local)
    assert hidden.find("s.h5", str(root / "run" / ".keys" / "main.h5")) == str(
        root / "run" / ".keys" / "s.h5"
    )


def test_further_places(root: Path) -> None:
    (root / "way").symlink_to(root / "away")
    files, main = files_of(root, f"{root}/way/")
    for name in ("../away/s.h5", f"{root}/away/s.h5", "link.h5", "folder/s.h5"):
        assert files.find(name, main) == str(root / "away" / "s.h5")
    assert files.find(f"{root}/away/none.h5", main) is None
    (root / "away" / "deep").mkdir()
    (root / "away" / "deep" / "t.h5").write_bytes(b"t")
    (root / "away" / "t.h5").write_bytes(b"t")
    assert files.find("deep/t.h5", main) == str(root / "away" / "deep" / "t.h5")
    assert files.find("/elsewhere/deep/t.h5", main) == str(root / "away" / "t.h5")
    assert files.looked_at("t.h5", main) == f"{root}/run/t.h5, {root}/away/t.h5"
    with pytest.raises(Forbidden):
        files.find("../awayward/s.h5", main)


def test_names_go_by_the_file_that_has_them(root: Path) -> None:
    files, _ = files_of(root)
    assert files.find("s.h5", str(root / "run" / "sub" / "s.h5")) == str(root / "run" / "sub" / "s.h5")
    assert files.find("../beside.h5", str(root / "run" / "sub" / "s.h5")) == str(root / "run" / "beside.h5")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_is_no_name(root: Path, name: str) -> None:
    files, main = files_of(root)
    with pytest.raises(BadRequest, match="which is not a valid name"):
        files.find(name, main)


def test_a_directory_is_no_file(root: Path) -> None:
    files, main = files_of(root)
    with pytest.raises(BadRequest, match="is no file"):
        files.find("sub", main)


class BucketFile(InputFile):
    def __init__(self, location: str) -> None:
        if not location.endswith("s.h5"):
            raise NotFound(location)
        self.name, self.size, self.fingerprint = location, 3, "e"

    def close(self) -> None:
        pass

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        return [b"one" for _ in wanted]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("s.h5", "s3://lab/run/s.h5"), ("sub/../s.h5", "s3://lab/run/s.h5"),
        ("/data/s.h5", "s3://lab/run/s.h5"), ("s3://lab/run/x/s.h5", "s3://lab/run/x/s.h5"),
        ("s3://raw/2026/s.h5", "s3://raw/2026/s.h5"), ("none.h5", None), ("../s.h5", Forbidden),
        ("../../../s.h5", Forbidden), ("s3://lab/run/../s.h5", Forbidden),
        ("s3://lab/runs/s.h5", Forbidden), ("s3://other/s.h5", Forbidden), ("s3://lab", BadRequest),
    ],
)  # fmt: skip
def test_objects_of_buckets(name: str, found: str | type[HsparseError] | None) -> None:
    main = "s3://lab/run/main.h5"
    files = SourceFiles(main, BucketFile, ["s3://raw/2026"])
    if isinstance(found, type):
        with pytest.raises(found):
            files.find(name, main)
    else:
        assert files.find(name, main) == found


def test_a_bucket_leads_to_no_file_of_this_machine(root: Path) -> None:
    files = SourceFiles("s3://lab/run/main.h5", open_local, [str(root)])
    for name in (f"file://{root}/run/beside.h5", f"{root}/run/beside.h5"):
        assert files.find(name, "s3://lab/run/main.h5") is None


class Counted(LocalSource):
    """A file that counts how many are open."""

    open_files = 0
    opened = 0

    def __init__(self, location: str) -> None:
        super().__init__(Path(location))
        Counted.open_files += 1
        Counted.opened += 1

    def close(self) -> None:
        super().close()
        Counted.open_files -= 1


def test_few_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MAX_OPEN", 4)
    monkeypatch.setattr(Counted, "open_files", 0)
    for number in range(40):
        (tmp_path / f"s{number}.h5").write_bytes(b"%02d" % number)
    files = SourceFiles(str(tmp_path / "main.h5"), Counted)
    places = [files.find(f"s{number}.h5", str(tmp_path / "main.h5")) for number in range(40)]
    shared = [SharedSource(files, place) for place in places if place]
    assert Counted.open_files <= 4

    def read(number: int) -> bytes:
        assert Counted.open_files <= 4 + 8
        return shared[number % 40].read(0, 2)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(400))) == [b"%02d" % (number % 40) for number in range(400)]
    assert Counted.open_files <= 4
    with files.use(places[0] or ""):
        before = Counted.opened
        with files.use(places[0] or ""):
            assert Counted.opened == before, "one that is in use is shared"
    files.close()
    assert Counted.open_files == 0


def test_a_file_that_changes_is_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.h5"
    path.write_bytes(b"one")
    files = SourceFiles(str(tmp_path / "main.h5"), open_local)
    shared = SharedSource(files, str(path))
    files.close()
    path.write_bytes(b"other")
    with pytest.raises(Conflict, match=r"s\.h5 was changed"):
        shared.read(0, 1)
    shared.close()
    files.close()


def test_where_no_files_are_read() -> None:
    with pytest.raises(Unsupported, match="cannot be read here"), NO_FILES.use("/x/s.h5"):
        pass


DATA = bytes(range(256)) * 5


def test_a_source_is_a_file_that_is_read_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.source.FETCH_BYTES", 100)
    path = tmp_path / "data"
    path.write_bytes(DATA)
    with LocalSource(path) as source:
        with source.file() as file, source.file() as other:
            assert other.read(10) == DATA[:10]
            assert file.read() == DATA
            assert file.read(5) == b""
            assert file.seek(-7, SEEK_END) == len(DATA) - 7
            assert file.read(100) == DATA[-7:]
            assert file.seek(1000) == file.tell() == 1000
            assert file.seek(-300, SEEK_CUR) == 700
            assert file.read(300) == DATA[700:1000]
            file.seek(len(DATA) + 5)
            assert file.read(1) == b""
            with pytest.raises(OSError, match="before the file"):
                file.seek(-len(DATA) - 1, SEEK_END)
            assert other.read(10) == DATA[10:20]
        assert source.read(0, 3) == DATA[:3]
        path.write_bytes(DATA[:100])
        with pytest.raises(Corrupt, match="became shorter"), source.file() as file:
            file.read()


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        LocalSource(tmp_path / "none")
    with pytest.raises(BadRequest, match="is no file"):
        LocalSource(tmp_path)


def test_each_block_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "BLOCK_BYTES", 10)
    monkeypatch.setattr(block_cache, "MAX_BLOCKS", 2)
    data, asked = bytes(range(35)), []

    monkeypatch.setattr(block_cache, "MAX_CACHED_RANGE_BYTES", 30)

    def begin(wanted: ByteRange) -> Future[bytes]:
        asked.append((wanted.address, wanted.size))
        found = Future[bytes]()
        found.set_result(data[wanted.address : wanted.address + wanted.size])
        return found

    cache = BlockCache(len(data), begin)
    ranges = [ByteRange(*one) for one in ((3, 4), (8, 4), (0, 0), (30, 5), (12, 3), (3, 1), (2, 31))]
    assert cache.read(ranges) == [data[one.address : one.address + one.size] for one in ranges]
    assert asked == [(0, 10), (10, 10), (30, 5), (0, 10), (2, 31)], "what is large is not taken from blocks"


class Finder:
    def __init__(self, path: Path) -> None:
        self.files = SourceFiles(str(path), lambda location: LocalSource(Path(location)))
        self.source = LocalSource(path)
        self.file = SourceFile.of(self.source, self.files)

    def __call__(self, path: str) -> FoundObject | None:
        return find_object(self.source, self.file.file, self.files, path)


@pytest.fixture
def find(tmp_path: Path) -> Iterator[Finder]:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["deep/x"] = [1, 2, 3]
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["g/h/x"] = [1, 2]
        file["g/loop"] = file["g"]
        file["g/relative"] = h5py.SoftLink("h/x")
        file["absolute"] = h5py.SoftLink("/g/h")
        file["dangling"] = h5py.SoftLink("/g/none")
        file["a"], file["b"] = h5py.SoftLink("b"), h5py.SoftLink("a")
        file["away"] = h5py.ExternalLink("other.h5", "deep")
        file["gone"] = h5py.ExternalLink("none.h5", "x")
        file["out"] = h5py.ExternalLink("/etc/hostname", "x")
    finder = Finder(tmp_path / "f.h5")
    yield finder
    finder.source.close()
    finder.files.close()


@pytest.mark.parametrize(
    "path",
    ["/g/h/x", "g/h/x", "./g//h/./x", "g/loop/loop/h/x", "g/relative", "absolute/x", "g/loop/relative"],
)
def test_paths_in_the_file(find: Finder, path: str) -> None:
    found = find(path)
    assert found is not None
    assert found.source is find.source
    assert found.object.kind == ObjectKind.DATASET


def test_paths_to_another_file(find: Finder, tmp_path: Path) -> None:
    found = find("away/x")
    assert found is not None
    assert found.source.name == str(tmp_path / "other.h5")
    assert found.object.dataset is not None
    assert found.object.dataset.shape["dims"] == [3]
    assert find.file.find(found.object.header.address) is None


@pytest.mark.parametrize("path", ["none", "g/none/x", "dangling", "gone", "away/none", "g/h/x/y"])
def test_what_is_not_there(find: Finder, path: str) -> None:
    assert find(path) is None


def test_the_root_group(find: Finder) -> None:
    found = find("/")
    assert found is not None
    assert found.object.kind == ObjectKind.GROUP


def test_what_is_refused(find: Finder) -> None:
    with pytest.raises(Corrupt, match="More than 16 links"):
        find("a")
    with pytest.raises(Corrupt, match="limit is 1000"):
        find("/".join(["x"] * (MAX_DEPTH + 1)))
    with pytest.raises(Forbidden, match="hostname"):
        find("out")


SOURCE_PARTS_DATA = np.arange(12 * 15 * 9).reshape(12, 15, 9)


@pytest.mark.parametrize("hull", [0, 100, 1000, 10**6])
@given(draw=st.data(), products=st.booleans())
def test_any_elements(hull: int, draw: st.DataObject, products: bool) -> None:
    boxes: list[int] = []

    def read(start: tuple[int, ...], stop: tuple[int, ...]) -> np.ndarray:
        assert all(
            0 <= a < b <= length for a, b, length in zip(start, stop, SOURCE_PARTS_DATA.shape, strict=True)
        )
        boxes.append(prod(b - a for a, b in zip(start, stop, strict=True)))
        return SOURCE_PARTS_DATA[tuple(map(slice, start, stop))]

    if products:
        lists = [
            sorted(draw.draw(st.sets(st.integers(0, length - 1), min_size=1)))
            for length in SOURCE_PARTS_DATA.shape
        ]
        expected = SOURCE_PARTS_DATA[np.ix_(*lists)]
    else:
        point = st.tuples(*(st.integers(0, length - 1) for length in SOURCE_PARTS_DATA.shape))
        points = draw.draw(st.lists(point, min_size=1, max_size=60))
        lists = [list(column) for column in zip(*points, strict=True)]
        expected = SOURCE_PARTS_DATA[tuple(lists)]
    part = MappedPart((), tuple(np.array(one) for one in lists), products)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_parts, "MAX_HULL_BYTES", hull)
        found = read_part(read, part, 8)
    assert np.array_equal(found, expected)
    if not hull:
        assert sum(boxes) == expected.size or not products


def test_a_source_without_dimensions() -> None:
    for products in (True, False):
        found = read_part(lambda start, stop: np.array(5), MappedPart((), (), products), 8)
        assert found.ravel().tolist() == [5]
