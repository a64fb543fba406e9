"""Files that are not whole yet: one writer, a name at the end, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.errors import Conflict, StoreFailed
from hsparse.hdf5.domain_file import PartFile

STATE, OTHER = "2-stock-" + "01" * 16, "2-stock-" + "02" * 16


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    target = tmp_path / "f"
    with PartFile(target, STATE) as part:
        part.file.write(b"one")
        with pytest.raises(Conflict, match="written by another export"), PartFile(target, STATE):
            pass
        with PartFile(target, OTHER) as other:
            other.remove_others()
        assert part.path.exists(), "somebody writes it"
        part.finish(replace=False)
    assert target.read_bytes() == b"one"
    with PartFile(target, STATE) as part:
        part.remove_others()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["f", f"f.{STATE}.part"]


def test_a_target_that_was_made_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "f"
    with PartFile(target, STATE) as part:
        part.file.write(b"new")
        target.write_bytes(b"old")
        with pytest.raises(Conflict, match="was made meanwhile"):
            part.finish(replace=False)
        assert target.read_bytes() == b"old"
        part.finish(replace=True)
    assert (target.read_bytes(), [one.name for one in tmp_path.iterdir()]) == (b"new", ["f"])


def test_what_a_disk_refuses(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="f cannot be written"), PartFile(tmp_path / "none" / "f", STATE):
        pass
    with pytest.raises(StoreFailed, match="File name too long"), PartFile(tmp_path / ("n" * 250), STATE):
        pass
    with pytest.raises(StoreFailed, match="No space left"), PartFile(tmp_path / "f", STATE):
        raise OSError(28, "No space left on device")
