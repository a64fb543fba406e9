"""All that is below a directory, to see whether anything of it was changed."""

from __future__ import annotations

from pathlib import Path


def directory_state(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return what is below a directory, by path: modes, times and contents."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, content)
    return found
