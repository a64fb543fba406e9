"""How objects are read: in a way that is given, or in one that the server offers in the dataset's map."""

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
        """Return the reader, None if everything is read by the server."""
        ...


@dataclass(frozen=True, slots=True)
class GivenReader:
    """The reader that the caller has given."""

    reader: ObjectReader

    def choose(self, found: DatasetMap) -> ObjectReader | None:
        return self.reader


@dataclass(frozen=True, slots=True)
class OfferedReader:
    """Presigned URLs, if the map has them, or the store's directory, if it is on this machine.

    A directory is believed only of a server on this machine, if `here`. Without either the objects come from `server`.
    Without that the server reads or, if direct reads are `required`, `Unsupported` is raised.
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
                "machine. Name the store's directory or bucket as direct=, or leave it out."
            )
        return None
