"""What a domain has otherwise after it was exported and imported, each difference by its name, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.cli.importer.domain_picture import Difference, Picture


@dataclass(frozen=True)
class Known:
    """A difference: `explains` is asked with the layout or revision, and the picture before."""

    name: str
    why: str
    explains: Callable[[Difference, str, Picture], bool]


KNOWN: tuple[Known, ...] = ()
