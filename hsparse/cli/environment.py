"""The environment of commands: defaults of client flags, and a check for variables that no setting has.

It needs only the base install; `hsparse.config`, which reads the server's settings, requires packages of the server.
"""

from __future__ import annotations

import os

from hsparse.dn.data_settings import DataSettings
from hsparse.errors import Misconfigured
from hsparse.sections import ClientSettings, ClusterSettings, ServerSettings, SignInSettings
from hsparse.setting import Declaration, declared_settings, misspelling
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.store_settings import StoreSettings

CLIENT_SETTINGS: dict[str, Declaration] = declared_settings(ClientSettings)
"""The settings of client commands, by name."""
SERVER_SETTINGS: dict[str, Declaration] = {
    name: one
    for section in (
        ServerSettings,
        ClusterSettings,
        SignInSettings,
        StoreSettings,
        ServiceSettings,
        DataSettings,
    )
    for name, one in declared_settings(section).items()
}


def client_default(name: str) -> str | None:
    """Return the default of a client's flag: its variable, None if that is unset or empty."""
    return os.environ.get(CLIENT_SETTINGS[name].env_var) or None


def is_on_by_default(name: str) -> bool:
    """Say whether the variable of a client's flag is set, and on."""
    return (client_default(name) or "").lower() in ("1", "true", "t", "yes", "y", "on")


def server_default(name: str) -> str | None:
    """Return the default of a flag for a server's setting, as `client_default`."""
    return os.environ.get(SERVER_SETTINGS[name].env_var) or None


def check_environment() -> None:
    """Raise `Misconfigured` for a variable that begins like a setting's and is none; it names the nearest."""
    known = {one.env_var for settings in (CLIENT_SETTINGS, SERVER_SETTINGS) for one in settings.values()}
    sentence = misspelling(list(os.environ), sorted(known))
    if sentence is not None:
        raise Misconfigured(sentence)
