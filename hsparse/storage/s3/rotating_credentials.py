"""Credentials of botocore's chain that can be read again: keys in files and roles change while a server runs."""

from __future__ import annotations

from typing import Any

from aiobotocore.credentials import AioCredentials
from aiobotocore.session import get_session
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import NoCredentialsError


class RotatingCredentials(AioCredentials):  # type: ignore[misc] # it has no types
    """The credentials that the environment, files or a role had when they were last read.

    The object is also the session's component `credential_provider`, whose `load_credentials` returns the object.
    """

    def __init__(self) -> None:
        super().__init__("", "", method="chain")
        self._found: Any = None
        self._keys: ReadOnlyCredentials | None = None

    async def load_credentials(self) -> RotatingCredentials:
        """Read the credentials and return this object; botocore calls this once per session."""
        await self.renew()
        return self

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the keys for signing a request; raise botocore's `NoCredentialsError` if there are none."""
        if self._found is None:
            raise NoCredentialsError
        keys: ReadOnlyCredentials = await self._found.get_frozen_credentials()
        return keys

    async def renew(self) -> bool:
        """Read the credentials again; return whether they have changed."""
        self._found = await get_session().get_credentials()
        before = self._keys
        self._keys = None if self._found is None else await self._found.get_frozen_credentials()
        return self._keys != before
