"""Create the domain of an import, find the domain to resume an import, and delete the domain after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from hsparse.client.connection import Json
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import BadRequest, Conflict, Forbidden, Gone, NotFound
from hsparse.hdf5.format.messages.group_messages import StoredExternalLink
from hsparse.hdf5.format.plan.file_plan import USER_BLOCK
from hsparse.model.link import external_domain

FINGERPRINT = "importedFile"
"""The creation property of the root group that contains the fingerprint of the imported file."""


class TargetDomain:
    """The domain at `path` that a file is imported into."""

    def __init__(self, server: RetryingClient, path: str) -> None:
        self._server = server
        self.path = path

    def root_to_resume(self, fingerprint: str) -> str | None:
        """Return the root group's id of the domain whose import is resumed, or None if the domain does not exist.

        Raises `Conflict` if the path is a folder, or the domain was not imported from a file with this fingerprint.
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
                "domain, or delete this domain first."
            )
        return str(root)

    def refuse_existing(self) -> None:
        """Raise `Conflict` if the domain exists."""
        try:
            self._server.json("GET", "/")
        except (NotFound, Gone):
            return
        raise Conflict(
            f"{self.path} exists already: continue a stopped import by --resume, replace the domain by --force, or "
            "name another domain."
        )

    def missing(self, links: Mapping[str, StoredExternalLink]) -> list[str]:
        """Return a message for each link whose domain is missing or forbidden; `links` maps paths to external links."""
        found: dict[str, bool] = {}
        left = []
        for path, target in links.items():
            domain = external_domain(target.file, self.path)
            if domain not in found:
                found[domain] = self._exists(domain)
            if not found[domain]:
                left.append(f"{path}: {target.path} in {target.file} (looked at {domain})")
        return left

    def _exists(self, domain: str) -> bool:
        try:
            self._server.json("GET", "/", domain=domain)
        except (NotFound, Gone, Forbidden, BadRequest):
            return False
        return True

    def create(
        self, root: str, fingerprint: str | None, *, ordered: bool, user_block: Json | None = None
    ) -> None:
        """Create the domain with the root group id `root`; with `ordered`, the root group tracks the creation order.

        Without a fingerprint, no import can be resumed into the domain.
        """
        properties: Json = {} if fingerprint is None else {FINGERPRINT: fingerprint}
        properties |= {"CreateOrder": 1} if ordered else {}
        properties |= {} if user_block is None else {USER_BLOCK: user_block}
        body = {"root_id": root, "group": {"creationProperties": properties}}
        try:
            self._server.json("PUT", "/", body)
        except Conflict:  # perhaps this request created it, and was retried after a lost response
            if self._server.json("GET", "/").get("root") != root:
                raise

    def delete(self, root: str) -> None:
        """Delete the domain with all its objects, if it exists and `root` is its root group."""
        with suppress(NotFound, Gone):
            if self._server.json("GET", "/").get("root") == root:
                self._server.json("DELETE", "/")
