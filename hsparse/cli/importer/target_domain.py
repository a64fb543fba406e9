"""The domain that is imported into: made for it, or gone on with, and deleted where an import fails."""

from __future__ import annotations

from contextlib import suppress

from hsparse.cli.importer.server import Server
from hsparse.client.connection import Json
from hsparse.errors import Conflict, Gone, NotFound

FINGERPRINT = "importedFile"
"""The creation property of the root group that tells which file is imported."""


class TargetDomain:
    """The domain `path`, and what is done with it."""

    def __init__(self, server: Server, path: str) -> None:
        self._server = server
        self.path = path

    def root_to_resume(self, fingerprint: str) -> str | None:
        """Return the root group of an import that was begun, None where there is no domain.

        `Conflict` when something else is there.
        """
        try:
            root = self._server.json("GET", "/").get("root")
        except (NotFound, Gone):
            return None
        found: Json = {}
        if root is not None:
            found = self._server.json("GET", f"/groups/{root}").get("creationProperties") or {}
        if root is None or found.get(FINGERPRINT) != fingerprint:
            raise Conflict(
                f"{self.path} was not imported from this file, or the file has changed since: import it into another "
                "domain, or delete this one first."
            )
        return str(root)

    def refuse_existing(self) -> None:
        """Raise `Conflict` when there is a domain."""
        try:
            self._server.json("GET", "/")
        except (NotFound, Gone):
            return
        raise Conflict(
            f"{self.path} exists already: go on with an import that was stopped by --resume, or name another domain."
        )

    def create(self, root: str, fingerprint: str, *, ordered: bool) -> None:
        """Create the domain with this root group; `ordered` says that order of creation is tracked."""
        properties = {FINGERPRINT: fingerprint} | ({"CreateOrder": 1} if ordered else {})
        body = {"root_id": root, "group": {"creationProperties": properties}}
        try:
            self._server.json("PUT", "/", body)
        except Conflict:  # made by this request, whose answer was lost and which was sent again
            if self._server.json("GET", "/").get("root") != root:
                raise

    def delete(self, root: str) -> None:
        """Delete the domain and all that is in it, if there is one and `root` is its root group."""
        with suppress(NotFound, Gone):
            if self._server.json("GET", "/").get("root") == root:
                self._server.json("DELETE", "/")
