from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.storage.filesystem.object_file import sweep, walk

NAMES = st.sampled_from(["a", "a.", "a-b", "a0", "b", "é", "😀", "\uffee"])


def walked(root: str, prefix: str, delimiter: bool = False, start_after: str = "") -> list[str]:
    return [key for key, _ in walk(root, prefix, delimiter, start_after)]


@given(
    st.sets(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=12),
    st.lists(NAMES | st.just(""), max_size=3).map("/".join),
    st.lists(NAMES | st.just(""), max_size=3).map("/".join),
    st.booleans(),
)
def test_agrees_with_sorting(keys: set[str], prefix: str, start_after: str, delimiter: bool) -> None:
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    with tempfile.TemporaryDirectory() as root:
        for key in keys:
            path = Path(root, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(key.encode())
        found = list(walk(root, prefix, delimiter, start_after))
    expected = set()
    for key in keys:
        if key.startswith(prefix):
            head, slash, _ = key.removeprefix(prefix).partition("/")
            expected.add(prefix + head + slash if delimiter else key)
    assert [key for key, _ in found] == sorted((key for key in expected if key > start_after), key=str.encode)
    for key, status in found:
        assert (status.st_size if status else None) == (None if key.endswith("/") else len(key.encode()))


def test_a_directory_that_vanishes_is_empty(tmp_path: Path) -> None:
    for key in ("a/b", "c/d", "e"):
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(b"")
    items = walk(str(tmp_path), "", False, "")
    assert next(items)[0] == "a/b"
    (tmp_path / "c" / "d").unlink()
    (tmp_path / "c").rmdir()
    (tmp_path / "e").unlink()
    assert list(items) == []


def test_other_directories_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / "x" / str(number)).mkdir(parents=True)
        (tmp_path / "x" / str(number) / "key").write_bytes(b"")
    read: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(path) or scandir(path))
    assert walked(str(tmp_path), "x/3/") == ["x/3/key"]
    assert walked(str(tmp_path), "x/", start_after="x/3/key") == ["x/4/key"]
    assert [path.removeprefix(str(tmp_path)) for path in read] == ["/x/3/", "/x/", "/x/3/", "/x/4/"]


def test_sweep_counts_what_it_removes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, old in (("a/.tmp-1", True), (".tmp-2", True), (".tmp-3", False), ("object", True)):
        (tmp_path / name).write_bytes(b"")
        if old:
            os.utime(tmp_path / name, ns=(0, 0))
    assert sweep(str(tmp_path)) == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".tmp-3", "a", "object"]
