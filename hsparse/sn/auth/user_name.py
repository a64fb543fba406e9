"""Names of users and groups, wherever they come from."""

from __future__ import annotations

import re

from hsparse.errors import BadRequest
from hsparse.model.acl import DEFAULT
from hsparse.model.principal import ANONYMOUS_NAME

NAME = re.compile(r"[A-Za-z0-9._@-]{1,128}", re.ASCII)
RESERVED = frozenset({DEFAULT, ANONYMOUS_NAME, ".", ".."})
"""What ACLs use for others, and what cannot be the name of a home folder."""


def is_user_name(name: str) -> bool:
    """Say whether a user can have this name."""
    return NAME.fullmatch(name) is not None and name not in RESERVED


def check_user_name(name: str) -> None:
    """Raise `BadRequest` for what cannot be a user's name."""
    if not is_user_name(name):
        raise BadRequest(
            f"{name!r} cannot be a user's name: use 1 to 128 letters, digits, '.', '_', '-', '@', "
            f"and none of {', '.join(sorted(RESERVED))}."
        )


def check_group_name(name: str) -> None:
    """Raise `BadRequest` for what cannot be a group's name."""
    if NAME.fullmatch(name) is None:
        raise BadRequest(
            f"{name!r} cannot be a group's name: use 1 to 128 letters, digits, '.', '_', '-', '@'."
        )
