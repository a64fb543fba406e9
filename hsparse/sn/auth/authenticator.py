"""Authentication: from a request's `Authorization` header to a principal.

Schemes are Basic (RFC 7617) and Bearer (RFC 6750), over passwords, API keys and tokens.
"""

from __future__ import annotations

from typing import Protocol

from hsparse.api_keys.api_key import PREFIX, KeyAuthenticator, is_api_key
from hsparse.errors import Unauthenticated
from hsparse.model.acl import ANONYMOUS, Principal
from hsparse.openid.token_authenticator import TokenAuthenticator
from hsparse.sn.auth.line_file import basic_credential
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.roles import Roles

BASIC = 'Basic realm="hsparse", charset="UTF-8"'
BEARER = 'Bearer realm="hsparse"'


class Authenticator(Protocol):
    """Turns a request's `Authorization` header into a principal."""

    @property
    def only(self) -> Principal | None:
        """The principal of every request; None where requests have their own."""
        ...

    @property
    def challenges(self) -> tuple[str, ...]:
        """The `WWW-Authenticate` headers of a 401 (RFC 9110, section 11.6.1): one for each scheme."""
        ...

    async def principal(self, authorization: str | None) -> Principal:
        """Return the principal, the anonymous one without a header; `Unauthenticated` for a bad credential."""
        ...

    def users(self) -> list[Principal]:
        """Return the users that are known before they sign in, by name: not those whom an issuer knows."""
        ...


class SingleUser:
    """No credentials: every request acts as the one admin user; only for servers that listen on loopback."""

    challenges: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.only = Principal(name, admin=True)

    async def principal(self, authorization: str | None) -> Principal:
        return self.only

    def users(self) -> list[Principal]:
        return [self.only]


class SchemeAuthenticator:
    """`Authenticator` by passwords, API keys and tokens; None for those that are not configured.

    An API key is accepted as a bearer token, and as the password of its user for clients that know only passwords.
    """

    only: Principal | None = None

    def __init__(
        self,
        *,
        passwords: PasswordAuthenticator | None = None,
        keys: KeyAuthenticator | None = None,
        tokens: TokenAuthenticator | None = None,
        roles: Roles | None = None,
    ) -> None:
        self._passwords = passwords
        self._keys = keys
        self._tokens = tokens
        self._roles = roles or Roles()

    @property
    def challenges(self) -> tuple[str, ...]:
        basic = (BASIC,) if self._passwords or self._keys else ()
        return (*basic, BEARER) if self._keys or self._tokens else basic

    async def principal(self, authorization: str | None) -> Principal:
        """Return the principal, the anonymous one without a header.

        `Unauthenticated` for a wrong or malformed credential, and for a scheme that is not configured; `Busy`
        if it cannot be checked now; `Misconfigured` if a file cannot be used.
        """
        if authorization is None:
            return ANONYMOUS
        scheme, _, rest = authorization.strip().partition(" ")
        if scheme.lower() == "basic":
            return self._roles.of(await self._basic(rest.strip()))
        if scheme.lower() == "bearer":
            return self._roles.of(await self._bearer(rest.strip()))
        raise Unauthenticated(f"This authentication scheme is not supported; use {self._schemes()}.")

    def users(self) -> list[Principal]:
        """Return the users of the password file, the key file, the group file and the settings.

        `Misconfigured` if a file cannot be used.
        """
        known = {name: Principal(name) for name in self._roles.users()}
        known |= {name: Principal(name) for name in (self._keys.users() if self._keys else ())}
        known |= self._passwords.users() if self._passwords else {}
        return [self._roles.of(known[name]) for name in sorted(known)]

    async def _basic(self, text: str) -> Principal:
        name, password = basic_credential(text)
        if self._keys is not None and is_api_key(password):
            return self._keys.principal(password, name)
        if self._passwords is None:
            raise Unauthenticated(f"This server takes no passwords; use {self._schemes()}.")
        return await self._passwords.sign_in(name, password)

    async def _bearer(self, text: str) -> Principal:
        if is_api_key(text):
            if self._keys is None:
                raise Unauthenticated(f"This server takes no API keys; use {self._schemes()}.")
            return self._keys.principal(text)
        if self._keys is not None and (text.startswith(PREFIX) or self._tokens is None):
            raise Unauthenticated("This is not a whole API key: it is hsk_ and 77 more characters.")
        if self._tokens is None:
            raise Unauthenticated(f"Bearer tokens are not supported by this server; use {self._schemes()}.")
        return await self._tokens.principal(text)

    def _schemes(self) -> str:
        ways = (
            (self._passwords, "Basic with a user name and password"),
            (self._keys, "Bearer with an API key"),
            (self._tokens, "Bearer with a token of its OpenID Connect issuer"),
        )
        return ", or ".join(way for known, way in ways if known is not None)
