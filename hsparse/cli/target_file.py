"""The file that a command is to make."""

from __future__ import annotations

from pathlib import Path

from hsparse.errors import BadRequest


def check_target(path: Path, *, replace: bool) -> None:
    """Raise `BadRequest` where there is one that may not be replaced, a directory, or no directory for it."""
    if path.is_dir():
        raise BadRequest(f"{path} is a directory: name a file in it.")
    if path.exists() and not replace:
        raise BadRequest(f"{path} exists; add --force to replace it.")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {path.absolute().parent} to write to.")
