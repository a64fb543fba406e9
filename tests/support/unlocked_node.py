"""`python -m tests.support.unlocked_node ...`: `hsparse dn` on a directory that another cluster may serve.

The locks of a shared file system may not reach the other machine. Nothing may be lost then.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hsparse.cli import data_node
from hsparse.cli.main import main


def unlocked(*_: Any) -> AbstractContextManager[None]:
    """Return a context that refuses no server."""
    return nullcontext()


if __name__ == "__main__":
    data_node.serving_store = unlocked
    sys.exit(main(["dn", *sys.argv[1:]]))
