"""The setting of API keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hsparse.api import setting


@dataclass(frozen=True, slots=True)
class KeySettings:
    """The file of API keys."""

    GROUP: ClassVar[str] = "Sign-in"
    COMMANDS: ClassVar[tuple[str, ...]] = ("serve", "sn")

    key_file: Path | None = setting(None, "file of API keys; see `hsparse key`")

    @property
    def signs_in(self) -> bool:
        """Whether users can sign in by API keys."""
        return self.key_file is not None


SECTION = KeySettings
