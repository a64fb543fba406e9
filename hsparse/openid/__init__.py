"""Sign-in by an OpenID Connect issuer: with its bearer tokens, and from the explorer."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(service=OptionalModule("hsparse.openid.handlers"))
