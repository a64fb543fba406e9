"""The six rights of a domain's ACL."""

from __future__ import annotations

from enum import StrEnum


class Right(StrEnum):
    """A right, by its key in an ACL."""

    CREATE = "create"
    READ = "read"
    UPDATE = "update"
    DELETE = "delete"
    READ_ACL = "readACL"
    UPDATE_ACL = "updateACL"
