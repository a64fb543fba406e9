"""The key file: API keys as they are kept, one line a key.

id:sha256:user:role:group,group:created:expires:name
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from hsparse.errors import Conflict, NotFound
from hsparse.sn.auth.api_key import ApiKey
from hsparse.sn.auth.line_file import Kind, LineFile, is_blank


def _read(line: str) -> tuple[str, ApiKey]:
    key = ApiKey.of_line(line)
    return key.id, key


KIND = Kind("key file", "make one with 'hsparse key add'", _read)


class KeyFile:
    """A key file, read when first used and again whenever it has changed on disk."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, KIND)

    @property
    def path(self) -> Path:
        return self._file.path

    def keys(self) -> Mapping[str, ApiKey]:
        """Return all keys by id, as the file is now; `Misconfigured` as `LineFile.entries`."""
        return self._file.entries()

    def served(self) -> Mapping[str, ApiKey]:
        """Return the same to answer a request with, as `LineFile.served`."""
        return self._file.served()

    def add(self, key: ApiKey) -> None:
        """Add a key; `Conflict` when there is one of that name. Makes the file if need be."""

        def change(lines: list[str]) -> None:
            if any(one.name == key.name for one in _keys(lines)):
                raise Conflict(
                    f"There is a key named {key.name} in {self.path} already; revoke it, or choose another name."
                )
            lines.append(key.line)

        self._file.edit(change)

    def revoke(self, picks: Callable[[ApiKey], bool]) -> list[ApiKey]:
        """Remove the keys that `picks` says, and return them; `NotFound` when there is none."""
        gone: list[ApiKey] = []

        def change(lines: list[str]) -> None:
            gone.extend(key for key in _keys(lines) if picks(key))
            if not gone:
                raise NotFound(f"There is no such key in {self.path}; 'hsparse key list' shows all.")
            lines[:] = [line for line in lines if is_blank(line) or not picks(ApiKey.of_line(line))]

        self._file.edit(change)
        return gone


def _keys(lines: list[str]) -> list[ApiKey]:
    return [ApiKey.of_line(line) for line in lines if not is_blank(line)]
