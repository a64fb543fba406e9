"""The environment of commands: defaults of client flags, and a check for variables that match no setting.

This module needs only the base install; `hsparse.config`, which reads the settings of servers, needs more packages.
"""

from __future__ import annotations

import os

from hsparse.dn.data_settings import DataSettings
from hsparse.errors import Misconfigured
from hsparse.extension import extension_sections
from hsparse.sections import ClientSettings, ClusterSettings, ServerSettings, SignInSettings
from hsparse.setting import Declaration, declared_settings, misspelling, strip_variables, unprintable
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.store_settings import StoreSettings

CLIENT_SETTINGS: dict[str, Declaration] = declared_settings(ClientSettings)
"""Maps the name of each setting of client commands to its declaration."""
SERVER_SETTINGS: dict[str, Declaration] = {
    name: one
    for section in (
        ServerSettings,
        ClusterSettings,
        SignInSettings,
        StoreSettings,
        ServiceSettings,
        DataSettings,
        *extension_sections(),
    )
    for name, one in declared_settings(section).items()
}


def client_default(name: str) -> str | None:
    """Return the value of a client setting's environment variable, or None if the variable is unset or empty."""
    return _variable(CLIENT_SETTINGS[name])


def _variable(one: Declaration) -> str | None:
    strip_variables(os.environ)
    return os.environ.get(one.env_var) or None


def is_on_by_default(name: str) -> bool:
    """Return whether the environment variable of a client setting has a value that means true, such as "1" or "yes"."""
    return (client_default(name) or "").lower() in ("1", "true", "t", "yes", "y", "on")


def server_default(name: str) -> str | None:
    """Return the value of a server setting's environment variable, or None if the variable is unset or empty."""
    return _variable(SERVER_SETTINGS[name])


def check_environment() -> None:
    """Raise `Misconfigured` if a variable has control characters, or if no setting has the variable `HSPARSE_...`."""
    strip_variables(os.environ)
    known = {one.env_var for settings in (CLIENT_SETTINGS, SERVER_SETTINGS) for one in settings.values()}
    sentence = unprintable(os.environ) or misspelling(list(os.environ), sorted(known))
    if sentence is not None:
        raise Misconfigured(sentence)
