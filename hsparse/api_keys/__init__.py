"""API keys: credentials of programs, stored in a file."""

from hsparse.extension import Command, Extension
from hsparse.optional_module import OptionalModule

KEY = Command(
    "hsparse.api_keys.command",
    help="add, list and revoke API keys",
    parts={"keys": OptionalModule("hsparse.api_keys.key_commands", "server")},
)
EXTENSION = Extension(commands={"key": KEY}, service=OptionalModule("hsparse.api_keys.api_key"))
