"""API keys: credentials of programs, stored in a file."""

from hsparse.api import Command, Extension, OptionalModule

KEY = Command(
    "hsparse.api_keys.command",
    help="add, list and revoke API keys",
    parts={"keys": OptionalModule("hsparse.api_keys.key_commands", "server")},
)
EXTENSION = Extension(
    commands={"key": KEY},
    service=OptionalModule("hsparse.api_keys.api_key"),
    settings=OptionalModule("hsparse.api_keys.settings"),
)
