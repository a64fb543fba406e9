"""Basic credentials (RFC 7617), as servers and the commands that they start as jobs read them.

A module of its own because commands use it where only the client is installed.
"""

from __future__ import annotations

import base64
import binascii

from hsparse.errors import Unauthenticated


def basic_credential(text: str) -> tuple[str, str]:
    """Return the name and password of a Basic credential; `Unauthenticated` when it is none."""
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        # The cause would carry the credential.
        raise Unauthenticated("The Basic credential is not base64 of UTF-8 text (RFC 7617).") from None
    name, colon, password = decoded.partition(":")
    if not colon:
        raise Unauthenticated("The Basic credential has no colon between name and password (RFC 7617).")
    return name, password
