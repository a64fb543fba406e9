"""Records a store as hsparse 0.1 writes it: `python -m tests.upgrade.record CHECKOUT` writes `tests/data/store-0.1/`.

CHECKOUT is a directory with the sources of that version: `git worktree add CHECKOUT f77eea1`. At the end the server is
killed, and one file is removed as a power loss would, so that only the write-ahead log has it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.support.server_process import children_of
from tests.upgrade.content import FILE, FILE_BYTES, SHARED, Client, snapshot, write

DATA = Path(__file__).parent.parent / "data" / "store-0.1"
TAR, EXPECTED = DATA / "store.tar.xz", DATA / "expected.json"
TEXT = {"type": "H5T_STD_I32LE", "value": 42}


def record(checkout: str) -> None:
    """Write the store and what its server answered."""
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        root = Path(work, "store")
        (root / FILE).parent.mkdir(parents=True)
        (root / FILE).write_bytes(FILE_BYTES)
        command = [sys.executable, "-m", "hsparse.cli.main", "serve", "--root", str(root), "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": checkout}
        with subprocess.Popen(
            command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                url = server.stdout.readline().rpartition(" on ")[2].split()[0]
                write(url)
                shared = Client(url, SHARED)
                group = f"/groups/{shared('GET', '/')['root']}"
                expected = snapshot(url)
                shared("PUT", f"{group}/attributes/logged", TEXT)
                (writer,) = children_of(server.pid)
                os.kill(writer, signal.SIGKILL)
            finally:
                server.kill()
        (logged,) = {path for path in root.glob("db/*/.group.json") if b'"logged"' in path.read_bytes()}
        logged.unlink()
        with tarfile.open(TAR, "w:xz") as tar:
            tar.add(root, ".")
    EXPECTED.write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
