"""Who signs in where, if the caller does not say: the environment, and the file `~/.hscfg` that h5pyd reads too.

`HSPARSE_ENDPOINT`, `HSPARSE_USER`, `HSPARSE_PASSWORD`, `HSPARSE_TOKEN`; then `HS_ENDPOINT`, `HS_USERNAME`,
`HS_PASSWORD`, `HS_API_KEY`; then the same names in small letters in `~/.hscfg`, one `name = value` a line, `#` before a
comment. The first of the three that has an endpoint or a credential is used, whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from hsparse.client.errors import InvalidValue
from hsparse.client.http.address import is_loopback

NAMES = {
    "HSPARSE": ("ENDPOINT", "USER", "PASSWORD", "TOKEN"),
    "HS": ("ENDPOINT", "USERNAME", "PASSWORD", "API_KEY"),
}


@dataclass(frozen=True, slots=True)
class SignIn:
    """A server's URL and a credential, each None if it is not known."""

    endpoint: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def is_empty(self) -> bool:
        return self == SignIn()

    def is_for(self, endpoint: str) -> bool:
        """Say whether the credential is meant for a server: the one it was given with, or any if with none."""
        return self.endpoint is None or self.endpoint.rstrip("/") == endpoint.rstrip("/")

    def for_server(self, endpoint: str) -> SignIn:
        """Return it for a server that the caller names: without the credential if that was meant for another one.

        `InvalidValue` for a token that was given with no server, if it would leave this machine: whoever has it can
        use it.
        """
        if not self.is_for(endpoint):
            return SignIn(endpoint)
        if (
            self.endpoint is None
            and self.token is not None
            and not is_loopback(urlsplit(endpoint).hostname or "")
        ):
            raise InvalidValue(
                f"The token is set without the server that it is for: to send it to {endpoint}, set HSPARSE_ENDPOINT "
                "beside HSPARSE_TOKEN, HS_ENDPOINT beside HS_API_KEY, or hs_endpoint in ~/.hscfg."
            )
        return SignIn(endpoint, self.user, self.password, self.token)


def read_sign_in(environment: Mapping[str, str] | None = None, home: Path | None = None) -> SignIn:
    """Return what the environment or the file in the home directory says."""
    variables = os.environ if environment is None else environment
    sources = [
        _named(variables, "HSPARSE"),
        _named(variables, "HS"),
        _named(_file_values((home or Path.home()) / ".hscfg"), "HS"),
    ]
    return next((one for one in sources if not one.is_empty), SignIn())


def _named(values: Mapping[str, str], prefix: str) -> SignIn:
    return SignIn(*(values.get(f"{prefix}_{name}") or None for name in NAMES[prefix]))


def _file_values(path: Path) -> dict[str, str]:
    """Return the values of a file, names in capitals; none if it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip().upper(): value.strip() for name, _, value in pairs}
