"""Files that commands are to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.cli.target_file import check_target
from hsparse.errors import BadRequest


def test_what_may_be_made(tmp_path: Path) -> None:
    there = tmp_path / "there"
    check_target(there, replace=False)
    there.touch()
    check_target(there, replace=True)
    with pytest.raises(BadRequest, match="there exists; add --force"):
        check_target(there, replace=False)
    with pytest.raises(BadRequest, match="is a directory"):
        check_target(tmp_path, replace=True)
    with pytest.raises(BadRequest, match=r"There is no directory .*none to write to"):
        check_target(tmp_path / "none" / "file", replace=True)
