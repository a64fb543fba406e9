"""Default credentials, which come from the environment or from the file `~/.hscfg`, which h5pyd also reads.

The first source is `HSPARSE_ENDPOINT`, `HSPARSE_USER`, `HSPARSE_PASSWORD`, `HSPARSE_TOKEN`; the second `HS_ENDPOINT`,
`HS_USERNAME`, `HS_PASSWORD` and `HS_API_KEY`; the third `~/.hscfg`, with the names of the second in lower case, one
`name = value` per line. Only the first source that has an endpoint or a credential is used.
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
    """The URL of a server and a credential; values that are not known are None."""

    endpoint: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def is_empty(self) -> bool:
        return self == SignIn()

    def is_for(self, endpoint: str) -> bool:
        """Return whether the credential is for the server `endpoint`; without a URL, it is for all servers."""
        return self.endpoint is None or self.endpoint.rstrip("/") == endpoint.rstrip("/")

    def for_server(self, endpoint: str) -> SignIn:
        """Return the URL `endpoint` with the credential, or without it if the credential is for another server.

        Raises `InvalidValue` if a token is configured without a server and would be sent to another machine, because
        anybody who gets a token can use the token.
        """
        if not self.is_for(endpoint):
            return SignIn(endpoint)
        if (
            self.endpoint is None
            and self.token is not None
            and not is_loopback(urlsplit(endpoint).hostname or "")
        ):
            raise InvalidValue(
                f"The token is set without the URL of its server: to send it to {endpoint}, set HSPARSE_ENDPOINT "
                "for HSPARSE_TOKEN, HS_ENDPOINT for HS_API_KEY, or hs_endpoint in ~/.hscfg."
            )
        return SignIn(endpoint, self.user, self.password, self.token)


def read_sign_in(environment: Mapping[str, str] | None = None, home: Path | None = None) -> SignIn:
    """Return the server and credential of the environment or, if it has none, of `.hscfg` in the home directory."""
    variables = os.environ if environment is None else environment
    sources = [
        _named(variables, "HSPARSE"),
        _named(variables, "HS"),
        _named(_file_values((home or Path.home()) / ".hscfg"), "HS"),
    ]
    return next((one for one in sources if not one.is_empty), SignIn())


def _named(values: Mapping[str, str], prefix: str) -> SignIn:
    """Return the sign-in that the variables with a prefix give, without the line ends that tools leave in secrets."""
    return SignIn(*(values.get(f"{prefix}_{name}", "").rstrip("\r\n") or None for name in NAMES[prefix]))


def _file_values(path: Path) -> dict[str, str]:
    """Return a dict that maps the names in a file, in upper case, to values; it is empty if the file is unreadable."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # some editors write a byte order mark
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip().upper(): value.strip() for name, _, value in pairs}
