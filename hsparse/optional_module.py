"""Modules that are imported at their first use, because the import takes long or needs an extra of hsparse.

The name of such a module is a string argument of `OptionalModule`: `tests/test_import_law.py` reads it as an import.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hsparse.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class OptionalModule:
    """A module and the extra of hsparse that the module requires, or None if the base install is enough."""

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
                f'This needs the package {name}, which is not installed: run pip install "hsparse[{self.extra}]"'
            ) from error
