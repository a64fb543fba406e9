"""The authenticator that the settings configure."""

from __future__ import annotations

from collections.abc import Sequence

from hsparse.clock import Clock
from hsparse.errors import Misconfigured
from hsparse.sections import SignInSettings
from hsparse.sn.auth.authenticator import Authenticator, Scheme, SchemeAuthenticator, SingleUser
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.password_file import PasswordFile
from hsparse.sn.auth.roles import GroupFile, Roles


def make_authenticator(settings: SignInSettings, schemes: Sequence[Scheme], clock: Clock) -> Authenticator:
    """Make the authenticator for passwords and `schemes`; raise `Misconfigured` if a file of users is unusable."""
    if settings.password_file is None and not schemes:
        if settings.group_file is not None or settings.admins:
            raise Misconfigured(
                "--group-file and --admins need sign-in: add --password-file, --key-file or --oidc-issuer."
            )
        return SingleUser(settings.user)
    accounts = PasswordFile(settings.password_file) if settings.password_file is not None else None
    if accounts is not None:
        accounts.entries()
    return SchemeAuthenticator(
        passwords=PasswordAuthenticator(accounts, clock) if accounts is not None else None,
        schemes=schemes,
        roles=_roles(settings),
    )


def _roles(settings: SignInSettings) -> Roles:
    groups = GroupFile(settings.group_file) if settings.group_file is not None else None
    if groups is not None:
        groups.entries()
    return Roles(groups, settings.admins)
