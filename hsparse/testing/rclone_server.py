"""A loopback `rclone serve s3` over a directory, for tests: an S3 server of another make."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def rclone_server(rclone: Path, directory: Path) -> Iterator[str]:
    """Serve `directory`, whose directories are the buckets; the context's value is the server's URL.

    `rclone` is the program. It takes the access key `test` with the secret `test`.
    """
    options = ["--addr", "127.0.0.1:0", "--auth-key", "test,test"]
    command = [str(rclone), "serve", "s3", *options, str(directory)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stderr is not None
        reader = threading.Thread(target=process.stderr.read, daemon=True)  # a full pipe would stop it
        try:
            endpoint = _url(process)
            reader.start()
            yield endpoint
        finally:
            process.terminate()
            if reader.ident is not None:
                reader.join()


def _url(process: subprocess.Popen[str]) -> str:
    """Return the URL that the server names once it listens."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise RuntimeError("rclone did not start: " + "".join(lines))
