"""The authenticator, and the sign-in at an issuer, that the settings configure."""

from __future__ import annotations

from hsparse.api_keys.api_key import KeyAuthenticator, KeyFile
from hsparse.clock import Clock
from hsparse.errors import Misconfigured
from hsparse.openid.code_flow import CodeFlow
from hsparse.openid.issuer import Issuer
from hsparse.openid.token_authenticator import TokenAuthenticator, TokenRules
from hsparse.sections import SignInSettings
from hsparse.sn.auth.authenticator import Authenticator, SchemeAuthenticator, SingleUser
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.password_file import PasswordFile
from hsparse.sn.auth.roles import GroupFile, Roles


def make_issuer(settings: SignInSettings, clock: Clock) -> Issuer | None:
    """Make the issuer whose tokens sign in, None without one; `Misconfigured` for a URL that cannot be trusted."""
    return None if settings.oidc_issuer is None else Issuer(settings.oidc_issuer, clock)


def make_code_flow(settings: SignInSettings, issuer: Issuer | None, clock: Clock) -> CodeFlow | None:
    """Make what signs people in at the issuer, None where the explorer does not."""
    if settings.oidc_client_id is None:
        return None
    if issuer is None:
        raise Misconfigured("--oidc-client-id needs --oidc-issuer: name whose client it is.")
    return CodeFlow(issuer, clock, settings.oidc_client_id, settings.oidc_scope, settings.oidc_leeway)


def make_authenticator(settings: SignInSettings, issuer: Issuer | None, clock: Clock) -> Authenticator:
    """Make the authenticator; `Misconfigured` at once for a file that cannot be used."""
    _check_alone(settings)
    if not settings.signs_in:
        return SingleUser(settings.user)
    accounts = PasswordFile(settings.password_file) if settings.password_file is not None else None
    if accounts is not None:
        accounts.users()
    return SchemeAuthenticator(
        passwords=PasswordAuthenticator(accounts, clock) if accounts is not None else None,
        keys=_keys(settings, clock, accounts),
        tokens=_tokens(settings, issuer, clock),
        roles=_roles(settings),
    )


def _check_alone(settings: SignInSettings) -> None:
    """Raise `Misconfigured` for settings that require another one."""
    if settings.oidc_issuer is None and settings.oidc_audience:
        raise Misconfigured("--oidc-audience needs --oidc-issuer: name whose tokens are for it.")
    if not settings.signs_in and (settings.group_file is not None or settings.admins):
        raise Misconfigured(
            "--group-file and --admins need users: add --password-file, --key-file or --oidc-issuer."
        )


def _keys(settings: SignInSettings, clock: Clock, accounts: PasswordFile | None) -> KeyAuthenticator | None:
    if settings.key_file is None:
        return None
    file = KeyFile(settings.key_file)
    file.keys()
    return KeyAuthenticator(file, clock, accounts)


def _tokens(settings: SignInSettings, issuer: Issuer | None, clock: Clock) -> TokenAuthenticator | None:
    if issuer is None:
        return None
    rules = TokenRules(
        settings.oidc_audience, settings.oidc_user_claim, settings.oidc_group_claim, settings.oidc_leeway
    )
    return TokenAuthenticator(issuer, clock, rules)


def _roles(settings: SignInSettings) -> Roles:
    groups = GroupFile(settings.group_file) if settings.group_file is not None else None
    if groups is not None:
        groups.check()
    return Roles(groups, settings.admins)
