"""Choose the reader of objects: the one that the caller gave, or one that the server offers in the dataset's map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hsparse.client.integrations.direct.directory_objects import DirectoryObjects, is_store
from hsparse.client.integrations.direct.kept_map import DatasetMap
from hsparse.client.integrations.direct.object_reader import ObjectReader
from hsparse.client.integrations.direct.presigned_objects import PresignedObjects
from hsparse.errors import Unsupported


class ReaderChoice(Protocol):
    """Chooses the reader of a dataset's objects once, by its first map."""

    def choose(self, found: DatasetMap) -> ObjectReader | None:
        """Return the reader, or None if the server reads everything."""
        ...


@dataclass(frozen=True, slots=True)
class GivenReader:
    """Chooses the reader that the caller gave."""

    reader: ObjectReader

    def choose(self, found: DatasetMap) -> ObjectReader | None:
        return self.reader


@dataclass(frozen=True, slots=True)
class OfferedReader:
    """Chooses presigned URLs if the map has them, else the store's directory if it is on this machine.

    The directory is trusted only if the server is on this machine (`here`). Without both, the reader is `server`.
    If `server` is None, the server decodes the chunks, or `Unsupported` is raised if direct reads are `required`.
    """

    here: bool = True
    server: ObjectReader | None = None
    required: bool = False

    def choose(self, found: DatasetMap) -> ObjectReader | None:
        if found.urls:
            return PresignedObjects()
        if self.here and found.directory is not None and is_store(Path(found.directory)):
            return DirectoryObjects(Path(found.directory))
        if self.server is not None:
            return self.server
        if self.required and len(found.scaled):
            raise Unsupported(
                "The server offers no direct reads: its store has no presigned URLs, and is no directory on this "
                "machine. Name the store's directory or bucket as direct=, or leave direct= out."
            )
        return None
