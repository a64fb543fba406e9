"""Modules imported at their first use, because importing takes long or needs an extra that may not be installed.

Their names are string arguments of `OptionalModule`, so that `tests/test_import_law.py` can read them as imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hsparse.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class OptionalModule:
    """A module and the extra of hsparse that it requires, None for the base install."""

    module: str
    extra: str | None = None

    def load(self) -> Any:
        """Import the module; if a package of the extra is missing, raise a `Misconfigured` that names the extra."""
        try:
            return import_module(self.module)
        except ModuleNotFoundError as error:
            name = (error.name or "hsparse").partition(".")[0]
            if name == "hsparse" or self.extra is None:
                raise
            raise Misconfigured(
                f'This needs {name}, which is not installed here: pip install "hsparse[{self.extra}]"'
            ) from error
