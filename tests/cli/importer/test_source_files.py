"""Files that a file names: where they are looked up, which are refused, and how many are open."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hsparse.errors import BadRequest, Conflict, Forbidden, HsparseError, NotFound, Unsupported
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer import source_files
from hsparse.hdf5.importer.source import InputFile, LocalSource
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
        ("beside.h5", "run/beside.h5"),
        ("./sub/../beside.h5", "run/beside.h5"),
        ("sub/s.h5", "run/sub/s.h5"),
        ("inner.h5", "run/sub/s.h5"),
        ("{root}/run/beside.h5", "run/beside.h5"),
        ("/nowhere/beside.h5", "run/beside.h5"),
        ("{root}/away/beside.h5", "run/beside.h5"),
        ("none.h5", None),
        ("sub/none.h5", None),
        ("{root}/run/none.h5", None),
    ],
)
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
        ("s.h5", "s3://lab/run/s.h5"),
        ("sub/../s.h5", "s3://lab/run/s.h5"),
        ("/data/s.h5", "s3://lab/run/s.h5"),
        ("s3://lab/run/x/s.h5", "s3://lab/run/x/s.h5"),
        ("s3://raw/2026/s.h5", "s3://raw/2026/s.h5"),
        ("none.h5", None),
        ("../s.h5", Forbidden),
        ("../../../s.h5", Forbidden),
        ("s3://lab/run/../s.h5", Forbidden),
        ("s3://lab/runs/s.h5", Forbidden),
        ("s3://other/s.h5", Forbidden),
        ("s3://lab", BadRequest),
    ],
)
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
