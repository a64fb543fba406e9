"""Modules that are imported when they are used: they take long to import, or need an extra that is not installed.

Their names stand as strings in calls of `OptionalModule`, which `tests/test_import_law.py` reads as imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hsparse.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class OptionalModule:
    """A module, and the extra of the package that it requires, None for the base install."""

    module: str
    extra: str | None = None

    def load(self) -> Any:
        """Import the module; if a package is missing, `Misconfigured` names the extra to install."""
        try:
            return import_module(self.module)
        except ModuleNotFoundError as error:
            name = (error.name or "hsparse").partition(".")[0]
            if name == "hsparse" or self.extra is None:
                raise
            raise Misconfigured(
                f'This needs {name}, which is not installed here: pip install "hsparse[{self.extra}]"'
            ) from error
