from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hsparse.errors import BadRequest, Misconfigured
from hsparse.sn.auth.line_file import LineFile, LineFormat, is_blank


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
