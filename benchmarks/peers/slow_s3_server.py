"""moto with the latency of a real S3 server, and request counts: `python -m benchmarks.peers.slow_s3_server PORT`.

It serves one bucket until it is terminated.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from typing import Any

from tests.support.s3_servers import Answer, Application, make_bucket, moto_server

BUCKET = "bench"
DELAY = 0.02
"""Seconds that each request waits, as in the same region of a cloud."""
COUNTS = "/-/requests"
"""Path of the request counts; no bucket can have it."""


class _Slow:
    """Delays each request, concurrently with others, and counts requests by method."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._counts: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any]) -> Answer:
        if environ["PATH_INFO"] == COUNTS:
            return "200 OK", [("Content-Type", "application/json")], json.dumps(self._counts).encode()
        self._counts[environ["REQUEST_METHOD"]] += 1
        time.sleep(DELAY)
        return self._application(environ)


def main() -> None:
    """Serve on the port given on the command line."""
    with moto_server(port=int(sys.argv[1]), around=_Slow) as endpoint:
        make_bucket(endpoint, BUCKET)
        signal.pause()


if __name__ == "__main__":
    main()
