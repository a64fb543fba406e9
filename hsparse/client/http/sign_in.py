"""Default credentials: from the environment, or from the file `~/.hscfg` that h5pyd reads too.

The sources are `HSPARSE_ENDPOINT`, `HSPARSE_USER`, `HSPARSE_PASSWORD`, `HSPARSE_TOKEN`; then `HS_ENDPOINT`,
`HS_USERNAME`, `HS_PASSWORD`, `HS_API_KEY`; then the latter in lower case in `~/.hscfg`, one `name = value` per line,
with `#` before comments. Only the first source that has an endpoint or a credential is used.
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
    """A server's URL and a credential, with None for unknown values."""

    endpoint: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def is_empty(self) -> bool:
        return self == SignIn()

    def is_for(self, endpoint: str) -> bool:
        """Return whether the credential is for a server: the one configured with it, or any if none was configured."""
        return self.endpoint is None or self.endpoint.rstrip("/") == endpoint.rstrip("/")

    def for_server(self, endpoint: str) -> SignIn:
        """Return the sign-in for the server at `endpoint`, without the credential if that is for another server.

        Raises `InvalidValue` for a token configured without a server if it would leave this machine, because anybody
        who gets a token can use it.
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
    """Return the sign-in that the environment, or else the file in the home directory, configures."""
    variables = os.environ if environment is None else environment
    sources = [
        _named(variables, "HSPARSE"),
        _named(variables, "HS"),
        _named(_file_values((home or Path.home()) / ".hscfg"), "HS"),
    ]
    return next((one for one in sources if not one.is_empty), SignIn())


def _named(values: Mapping[str, str], prefix: str) -> SignIn:
    """Return the values of variables, without the line ends that orchestrators leave in secrets."""
    return SignIn(*(values.get(f"{prefix}_{name}", "").rstrip("\r\n") or None for name in NAMES[prefix]))


def _file_values(path: Path) -> dict[str, str]:
    """Return the values of a file by upper-case name, or none if it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # some editors write a byte order mark
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip().upper(): value.strip() for name, _, value in pairs}
