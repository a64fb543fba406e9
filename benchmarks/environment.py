"""A peer's own virtual environment, under `.bench/`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment at `path` with `packages`, which are pinned requirements in pip's syntax."""

    path: Path
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def install(self) -> None:
        """Create the environment unless it exists with the same packages."""
        marker = self.path / ".installed"
        wanted = "\n".join(self.packages)
        if marker.exists() and marker.read_text() == wanted:
            return
        subprocess.run([sys.executable, "-m", "venv", "--clear", self.path], check=True)
        pip: list[str | Path] = [self.python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *self.packages], check=True)
        marker.write_text(wanted)

    def version(self, package: str) -> str:
        """Return the installed version of `package`."""
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        done = subprocess.run([self.python, "-c", code], check=True, capture_output=True, text=True)
        return done.stdout.strip()
