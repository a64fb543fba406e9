from __future__ import annotations

import fcntl
import logging
from pathlib import Path

import pytest

from hsparse.errors import BadRequest, Misconfigured
from hsparse.sn.auth.file_in_place import is_bound
from hsparse.sn.auth.line_file import LineFile, LineFormat, is_blank
from tests.testing.manual_clock import ManualClock


def read(line: str) -> tuple[str, int]:
    name, _, number = line.partition("=")
    if not number.isdigit():
        raise BadRequest(f"{name} has no number.")
    return name, int(number)


KIND = LineFormat("number file", "write one", read, private=False)


@pytest.fixture
def file(tmp_path: Path) -> LineFile[int]:
    (tmp_path / "numbers").write_text("# numbers\n\na=1\nb=2\n")
    return LineFile(tmp_path / "numbers", KIND)


def test_entries_are_what_the_lines_say(file: LineFile[int], caplog: pytest.LogCaptureFixture) -> None:
    file.path.chmod(0o644)
    assert dict(file.entries()) == {"a": 1, "b": 2}
    assert file.entries() is file.entries()
    assert not caplog.records, "a file that is not private may be read by all"


def test_an_edit_sees_every_line_and_is_seen_by_other_readers(file: LineFile[int]) -> None:
    other = LineFile(file.path, KIND)
    assert dict(other.entries()) == {"a": 1, "b": 2}
    file.edit(lambda lines: lines.append(f"c={len(lines)}"))
    assert dict(other.entries()) == {"a": 1, "b": 2, "c": 4}


def test_what_is_wrong_is_told_with_its_line(file: LineFile[int]) -> None:
    file.path.write_text("a=1\nb\n")
    with pytest.raises(Misconfigured, match=rf"Line 2 of the number file {file.path}: b has no number"):
        file.entries()
    file.path.unlink()
    with pytest.raises(Misconfigured, match=f"There is no number file {file.path}; write one"):
        file.entries()


def test_requests_are_not_told_what_is_wrong_and_the_log_is_once(
    file: LineFile[int], caplog: pytest.LogCaptureFixture
) -> None:
    file.path.write_text("b\n")
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            with pytest.raises(Misconfigured) as caught:
                file.served()
    assert caught.value.message == "The server's number file cannot be used; its log says why."
    assert [record.getMessage() for record in caplog.records] == [
        f"Line 1 of the number file {file.path}: b has no number."
    ]


@pytest.mark.parametrize(
    ("line", "blank"), [("", True), ("  ", True), ("# a", True), (" # a", False), ("a", False)]
)
def test_blank_lines(line: str, blank: bool) -> None:
    assert is_blank(line) is blank


def test_who_has_the_file_and_not_its_name_sees_edits(file: LineFile[int], tmp_path: Path) -> None:
    # A hard link is to a test what a bind of the file alone is to a container.
    bound = LineFile(tmp_path / "bound", KIND)
    bound.path.hardlink_to(file.path)
    for number in (3, 4, 3):  # the same length, within one tick of the clock
        file.edit(lambda lines, number=number: lines.__setitem__(slice(2, None), [f"a={number}"]))  # type: ignore[misc]
        assert dict(bound.entries()) == {"a": number}


def test_a_reader_never_sees_half_an_edit(file: LineFile[int], tmp_path: Path) -> None:
    file.entries()
    with file.path.open("r+b") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(b"# half")
        writer.flush()
        assert dict(file.entries()) == {"a": 1, "b": 2}
        with pytest.raises(Misconfigured, match="cannot be read"):
            LineFile(file.path, KIND).entries()
        writer.truncate()
    assert dict(file.entries()) == {}


def test_a_file_that_was_replaced_where_it_is_kept_is_told_once_a_minute(
    file: LineFile[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with file.path.open("rb") as held:
        served = LineFile(
            Path(f"/proc/self/fd/{held.fileno()}"), KIND, clock
        )  # as a bind, it has no name to lose
        served.entries()
        assert not caplog.records
        (tmp_path / "other").write_text("a=9\n")
        (tmp_path / "other").replace(file.path)
        for _ in range(2):
            assert dict(served.entries()) == {"a": 1, "b": 2}
        assert len(caplog.records) == 1
        assert "mount the folder of the file" in caplog.text
        clock.time += 61
        served.entries()
        assert len(caplog.records) == 2


def test_a_file_that_is_mounted_by_itself_is_known(tmp_path: Path) -> None:
    file, mounts = tmp_path / "pass words", tmp_path / "mounts"
    file.touch()
    mounts.write_text(
        f"36 35 98:0 /mnt1 {str(file).replace(' ', chr(92) + '040')} rw,noatime - ext3 /dev/root rw\n"
    )
    assert is_bound(file, mounts)
    assert not is_bound(tmp_path, mounts)
    assert not is_bound(file, tmp_path / "none")
