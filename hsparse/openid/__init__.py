"""Sign-in by an OpenID Connect issuer: with its bearer tokens, and from the explorer."""

from hsparse.api import Extension, OptionalModule

EXTENSION = Extension(
    service=OptionalModule("hsparse.openid.handlers"), settings=OptionalModule("hsparse.openid.settings")
)
