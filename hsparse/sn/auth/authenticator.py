"""How a service node learns who is asking."""

from __future__ import annotations

from typing import Protocol

from hsparse.model.principal import Principal


class Authenticator(Protocol):
    """Turns a request's `Authorization` header into a principal."""

    @property
    def challenges(self) -> tuple[str, ...]:
        """The `WWW-Authenticate` headers of a 401 (RFC 9110, section 11.6.1): one for each scheme."""
        ...

    async def principal(self, authorization: str | None) -> Principal:
        """Return who is asking: the anonymous principal without a header; `Unauthenticated` for a bad one."""
        ...


class SingleUser:
    """No credentials: whoever reaches the server (loopback only) is the one admin user."""

    challenges: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self._principal = Principal(name, admin=True)

    async def principal(self, authorization: str | None) -> Principal:
        return self._principal
