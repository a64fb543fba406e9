"""The setting of quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hsparse.api import setting


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """The quota of a folder `/home/NAME` for which no admin has set a quota."""

    GROUP: ClassVar[str] = "Memory and limits"
    COMMANDS: ClassVar[tuple[str, ...]] = ("serve", "sn")

    home_quota: int = setting(
        0, "bytes that all domains in a home folder may take; 0: any number", ge=0, is_size=True
    )


SECTION = QuotaSettings
