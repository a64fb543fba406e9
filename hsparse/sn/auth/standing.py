"""What an authenticated user is beyond a name: the groups of a group file, and the list of admins."""

from __future__ import annotations

from dataclasses import replace

from hsparse.model.acl import GROUP_PREFIX
from hsparse.model.principal import Principal
from hsparse.sn.auth.group_file import GroupFile


class Standing:
    """Adds to principals what the settings say of them; `admins` are names, and groups as `g:name`."""

    def __init__(self, groups: GroupFile | None = None, admins: tuple[str, ...] = ()) -> None:
        self._groups = groups
        self._admins = frozenset(one for one in admins if not one.startswith(GROUP_PREFIX))
        self._admin_groups = frozenset(
            one.removeprefix(GROUP_PREFIX) for one in admins if one.startswith(GROUP_PREFIX)
        )

    def of(self, principal: Principal) -> Principal:
        """Return the principal with all its groups, as an admin if the settings make it one."""
        groups = principal.groups
        if self._groups is not None:
            groups |= self._groups.groups_of(principal.name)
        admin = principal.admin or principal.name in self._admins or bool(groups & self._admin_groups)
        if admin == principal.admin and groups == principal.groups:
            return principal
        return replace(principal, admin=admin, groups=groups)
