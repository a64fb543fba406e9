"""What a page has got from an issuer for a person who signs in, and what the issuer gives for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hsparse.errors import BadRequest

MAX_CODE = 8192
MAX_URL = 2048
VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CodeGrant:
    """What a page has got from the issuer, and what it kept meanwhile."""

    code: str = field(repr=False)
    verifier: str = field(repr=False)
    nonce: str = field(repr=False)
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """The tokens of an answer: one for access, of any form, and one that says who signed in."""

    access: str = field(repr=False)
    identity: str = field(repr=False)


def read_grant(body: object) -> CodeGrant:
    """Return the grant in a body; `BadRequest` names what is wrong, without what is in it."""
    members = body if isinstance(body, dict) else {}
    code = _text(members, "code", MAX_CODE)
    redirect_uri = _text(members, "redirect_uri", MAX_URL)
    return CodeGrant(code, _random_text(members, "verifier"), _random_text(members, "nonce"), redirect_uri)


def _random_text(members: dict[str, object], name: str) -> str:
    """Return a verifier, or a nonce, which is made in the same way (RFC 7636, section 4.1)."""
    value = _text(members, name, 128)
    if not VERIFIER.fullmatch(value):
        raise BadRequest(f"{name} must have 43 to 128 letters, digits, and -._~ (RFC 7636, section 4.1).")
    return value


def _text(members: dict[str, object], name: str, most: int) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise BadRequest(f"{name} must be a text of 1 to {most} characters.")
    return value
