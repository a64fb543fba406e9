"""`python -m tests.support.unlocked_server ...`: `hsparse serve` on a directory that another server may serve.

The locks of a shared file system may not reach the other machine. Nothing may be lost then.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hsparse.cli import serve
from hsparse.cli.main import main


def unlocked(*_: Any, **__: Any) -> AbstractContextManager[None]:
    """Return a context that refuses no server."""
    return nullcontext()


if __name__ == "__main__":
    serve.serving_store = unlocked
    sys.exit(main(["serve", *sys.argv[1:]]))
