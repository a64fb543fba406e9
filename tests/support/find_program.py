"""Where the programs are that judge what hsparse makes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find_program(name: str) -> str | None:
    """Return the path of a program, None if it is not installed. Beside this Python is looked first."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
