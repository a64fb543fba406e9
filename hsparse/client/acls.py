"""Access control lists of a domain or a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue, MissingKey
from hsparse.errors import NotFound

RIGHTS = ("create", "read", "update", "delete", "readACL", "updateACL")


class Acls(MutableMapping[str, frozenset[str]]):
    """The access control list of a domain or a folder: maps a user, a group (`g:x`) or `default` to a set of rights.

    Each lookup asks the server. The rights are `create`, `read`, `update`, `delete`, `readACL` and `updateACL`.

    >>> f.acls["ann"] = ["read"]
    >>> {name: sorted(rights) for name, rights in f.acls.items() if name != "admin"}
    {'ann': ['read']}
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Acls { {name: sorted(rights) for name, rights in self.items()} }>"

    def __getitem__(self, name: str) -> frozenset[str]:
        """Return the rights of a user, a group (`g:x`) or `default`; raise `MissingKey` if the name has no entry.

        >>> sorted(f.acls["admin"])
        ['create', 'delete', 'read', 'readACL', 'update', 'updateACL']
        """
        try:
            return _rights(self._connection.json("GET", f"/acls/{name}")["acl"])
        except NotFound as error:
            raise MissingKey(f"{self._connection.domain} has no ACL entry for {name!r}.") from error

    def __setitem__(self, name: str, rights: Iterable[str]) -> None:
        """Replace the rights of a user, a group or `default` by `rights`; an unknown right raises `InvalidValue`.

        >>> f.acls["default"] = ["read"]
        >>> f.acls["default"] = []
        >>> sorted(f.acls["default"])
        []
        """
        given = {rights} if isinstance(rights, str) else set(rights)
        if unknown := given - set(RIGHTS):
            raise InvalidValue(f"{sorted(unknown)} are not rights: give some of {', '.join(RIGHTS)}.")
        self._connection.json("PUT", f"/acls/{name}", {right: right in given for right in RIGHTS})

    def __delitem__(self, name: str) -> None:
        """Remove an entry, so that the entries of the user's groups or `default` apply; a missing one is `MissingKey`.

        >>> f.acls["ann"] = ["read"]
        >>> del f.acls["ann"]
        >>> "ann" in f.acls
        False
        """
        try:
            self._connection.json("DELETE", f"/acls/{name}")
        except NotFound as error:
            raise MissingKey(f"{self._connection.domain} has no ACL entry for {name!r}.") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, frozenset[str]]:
        listed = self._connection.json("GET", "/acls")["acls"]
        return {one["userName"]: _rights(one) for one in listed}


def _rights(record: Json) -> frozenset[str]:
    return frozenset(right for right in RIGHTS if record.get(right) is True)
