"""Settings of the sign-in by an OpenID Connect issuer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hsparse.api import setting


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """The issuer, and the rules that its tokens must satisfy."""

    GROUP: ClassVar[str] = "Sign-in"
    COMMANDS: ClassVar[tuple[str, ...]] = ("serve", "sn")

    oidc_issuer: str | None = setting(None, "URL of an OpenID Connect issuer whose bearer tokens sign in")
    oidc_audience: tuple[str, ...] = setting(
        (), "audiences, comma-separated: a token must be for one of them"
    )
    oidc_user_claim: str = setting("sub", "claim of a token that is the user's name", min_length=1)
    oidc_group_claim: str | None = setting(None, "claim of a token that lists the user's groups")
    oidc_client_id: str | None = setting(
        None, "id of the issuer's client by which the explorer signs people in", min_length=1
    )
    oidc_scope: str = setting("openid", "scopes that the explorer asks the issuer for", min_length=1)
    oidc_leeway: float = setting(60.0, "largest difference to the issuer's clock, in seconds", ge=0, le=600)

    @property
    def signs_in(self) -> bool:
        """Whether users can sign in by tokens."""
        return self.oidc_issuer is not None


SECTION = OpenIdSettings
