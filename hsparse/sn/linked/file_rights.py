"""May a principal have files of the store read? The folders above a file decide, as for domains."""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import ErrorKind, Forbidden, TooLarge
from hsparse.model.acl import allowed
from hsparse.model.linked_file import file_key
from hsparse.model.principal import Principal
from hsparse.model.right import Right
from hsparse.sn.owners import Owners

MOST_FOLDERS = 1000
"""Folders that the files of one read may be in."""


@dataclass(frozen=True, slots=True)
class FileRights:
    """The rights of one principal to files of the store, which is called `bucket`."""

    owners: Owners
    principal: Principal
    bucket: str

    async def require(self, *uris: str) -> None:
        """Raise `Forbidden` for a file in a folder where the principal may not read.

        The nearest folder or domain above the file decides; a file under none is anybody's. `BadRequest` for a
        URI that names no file of the store.
        """
        folders = {file_key(uri, self.bucket).rpartition("/")[0] for uri in uris}
        if len(folders) > MOST_FOLDERS:
            raise TooLarge(
                f"The data is in files of more than {MOST_FOLDERS} folders; select less at a time."
            )
        for folder in sorted(folders):
            await self._require_folder(folder)

    async def _require_folder(self, folder: str) -> None:
        components = folder.split("/") if folder else []
        paths = ["/" + "/".join(components[:depth]) for depth in range(len(components), 0, -1)]
        for path, outcome in zip(paths, await self.owners.read(*paths), strict=True):
            if outcome.failure is None:
                if not allowed(outcome.unwrap().get("acls") or {}, self.principal, Right.READ):
                    raise Forbidden(
                        f"{self.principal.name} does not have the right read in {path}, where the file is."
                    )
                return
            if outcome.failure.kind not in (ErrorKind.NOT_FOUND, ErrorKind.GONE):
                raise outcome.failure.error()
