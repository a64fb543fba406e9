"""Authentication: from a request's `Authorization` header to a principal.

The HTTP schemes are Basic (RFC 7617) and Bearer (RFC 6750), with passwords, API keys and tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from hsparse.errors import Unauthenticated
from hsparse.model.acl import ANONYMOUS, Principal
from hsparse.sn.auth.line_file import basic_credential
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.roles import Roles

BASIC = 'Basic realm="hsparse", charset="UTF-8"'
BEARER = 'Bearer realm="hsparse"'


class Authenticator(Protocol):
    """Turns a request's `Authorization` header into a principal."""

    @property
    def only(self) -> Principal | None:
        """The principal of every request if all requests have the same principal, otherwise None."""
        ...

    @property
    def challenges(self) -> tuple[str, ...]:
        """The values of a 401's `WWW-Authenticate` headers (RFC 9110, section 11.6.1), one for each HTTP scheme."""
        ...

    async def principal(self, authorization: str | None) -> Principal:
        """Return the principal of a header (no header: `ANONYMOUS`); raise `Unauthenticated` for a bad credential."""
        ...

    def users(self) -> list[Principal]:
        """Return the users that files and settings name, sorted by name. Users of an OpenID issuer are not included."""
        ...


class Scheme(Protocol):
    """A way to sign in by bearer credentials."""

    @property
    def way(self) -> str:
        """The scheme's name in error messages, such as `Bearer with an API key`."""
        ...

    @property
    def as_password(self) -> bool:
        """Whether a credential may be sent as the password of Basic, for clients that support only passwords."""
        ...

    @property
    def is_general(self) -> bool:
        """Whether the credentials have no fixed form. A general scheme gets credentials that no scheme `owns`."""
        ...

    def owns(self, text: str, *, whole: bool) -> bool:
        """Return whether `text` has the form of this scheme's credentials; if not `whole`, check only its prefix."""
        ...

    def users(self) -> Iterable[str]:
        """Return the names of the users that the scheme knows before they sign in."""
        ...

    async def principal(self, text: str, user: str | None = None) -> Principal:
        """Return a credential's principal; raise `Unauthenticated` if it is invalid or belongs to a user not `user`."""
        ...


class SingleUser:
    """An `Authenticator` without credentials: every request acts as one admin. Only for servers on loopback."""

    challenges: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.only = Principal(name, admin=True)

    async def principal(self, authorization: str | None) -> Principal:
        return self.only

    def users(self) -> list[Principal]:
        return [self.only]


class SchemeAuthenticator:
    """An `Authenticator` that checks passwords, if `passwords` is given, and bearer credentials by `schemes`."""

    only: Principal | None = None

    def __init__(
        self,
        *,
        passwords: PasswordAuthenticator | None = None,
        schemes: Sequence[Scheme] = (),
        roles: Roles | None = None,
    ) -> None:
        self._passwords = passwords
        self._schemes = schemes
        self._roles = roles or Roles()

    @property
    def challenges(self) -> tuple[str, ...]:
        basic = (BASIC,) if self._passwords or any(one.as_password for one in self._schemes) else ()
        return (*basic, BEARER) if self._schemes else basic

    async def principal(self, authorization: str | None) -> Principal:
        """Return the principal of a header (no header: `ANONYMOUS`); raise `Unauthenticated` for a bad credential.

        Raises `Busy` if the credential cannot be checked now, and `Misconfigured` if a file cannot be used.
        """
        if authorization is None:
            return ANONYMOUS
        scheme, _, rest = authorization.strip().partition(" ")
        if scheme.lower() == "basic":
            return self._roles.of(await self._basic(rest.strip()))
        if scheme.lower() == "bearer":
            return self._roles.of(await self._bearer(rest.strip()))
        raise Unauthenticated(f"This authentication scheme is not supported; use {self._ways()}.")

    def users(self) -> list[Principal]:
        """Return all known users; raise `Misconfigured` if a file of users cannot be used."""
        known = {name: Principal(name) for name in self._roles.users()}
        known |= {name: Principal(name) for scheme in self._schemes for name in scheme.users()}
        known |= self._passwords.users() if self._passwords else {}
        return [self._roles.of(known[name]) for name in sorted(known)]

    async def _basic(self, text: str) -> Principal:
        name, password = basic_credential(text)
        for scheme in self._schemes:
            if scheme.as_password and scheme.owns(password, whole=True):
                return await scheme.principal(password, name)
        if self._passwords is None:
            raise Unauthenticated(f"This server takes no passwords; use {self._ways()}.")
        return await self._passwords.sign_in(name, password)

    async def _bearer(self, text: str) -> Principal:
        if not self._schemes:
            raise Unauthenticated(f"Bearer tokens are not supported by this server; use {self._ways()}.")
        owners = [one for one in self._schemes if one.owns(text, whole=False)]
        general = [one for one in self._schemes if one.is_general]
        return await (*owners, *general, *self._schemes)[0].principal(text)

    def _ways(self) -> str:
        passwords = ["Basic with a user name and password"] if self._passwords else []
        return ", or ".join([*passwords, *(scheme.way for scheme in self._schemes)])
