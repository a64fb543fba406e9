"""Settings of a server process, read from flags and the environment; no other module reads the environment.

A setting is declared once, in the section of the part that uses it (`hsparse.setting`). Every setting `some_name`
has the flag `--some-name` and the variable `HSPARSE_SOME_NAME`; a flag takes precedence over the variable, and the
variable over the default. A size is in bytes unless the size has a unit; times are in seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BeforeValidator, Field, ValidationError, create_model
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hsparse.dn.data_settings import DataSettings
from hsparse.errors import Misconfigured
from hsparse.extension import extension_sections
from hsparse.sections import ClusterSettings, ServerSettings, SignInSettings
from hsparse.setting import (
    PREFIX,
    Declaration,
    declared_settings,
    parse_size,
    strip_variables,
    unprintable,
)
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.store_settings import StoreSettings

T = TypeVar("T")
NOT_FOR_JOBS = {
    f"{PREFIX}{name}" for name in ("NODE_TOKEN", "USER", "PASSWORD", "TOKEN", "TOKEN_FILE", "ENDPOINT")
}
"""Variables that the command of a job must not inherit, because each job gets its own server and credential."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process, by section."""

    server: ServerSettings
    cluster: ClusterSettings
    sign_in: SignInSettings
    store: StoreSettings
    service: ServiceSettings
    data: DataSettings
    added: Mapping[type, Any] = field(default_factory=dict)
    """Maps the class of the settings of each extension to the settings."""

    def section(self, kind: type[T]) -> T:
        """Return the settings of class `kind` of an extension; if none were read, return the defaults."""
        found: T = self.added.get(kind) or kind()
        return found

    @property
    def signs_in(self) -> bool:
        """Whether users can sign in: by passwords, or by an extension whose settings have a true `signs_in`."""
        ways = (getattr(one, "signs_in", False) for one in self.added.values())
        return self.sign_in.password_file is not None or any(ways)

    def check_exposure(self) -> None:
        """Raise `Misconfigured` if the server would listen beyond this machine without authentication."""
        if not is_loopback(self.server.host) and not self.signs_in:
            raise Misconfigured(
                f"The server cannot listen on {self.server.host} without --password-file, --key-file or "
                "--oidc-issuer, because everyone who reaches it would have all rights: listen on 127.0.0.1, or "
                "add users with `hsparse user add NAME --password-file FILE`."
            )

    def check_node_token(self) -> None:
        """Raise `Misconfigured` if a node of a cluster has no token: any account of the machine can reach its port."""
        if not self.cluster.node_token.strip():
            raise Misconfigured(
                "HSPARSE_NODE_TOKEN, the secret that all nodes of an installation share, is not set: make one with "
                "`openssl rand -hex 32`, and set the variable for every `hsparse dn` and `hsparse sn`."
            )


SECTIONS: dict[str, type] = {name: kind for name, kind in get_type_hints(Settings).items() if name != "added"}
"""Maps the name of each field of `Settings`, except `added`, to the class of the section."""
SETTINGS: dict[str, Declaration] = {
    name: one
    for section in (*SECTIONS.values(), *extension_sections())
    for name, one in declared_settings(section).items()
}
"""Maps the name of each setting to its declaration, including the settings of extensions."""


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the address `host`: `localhost`, `::1`, or one of 127.0.0.0/8."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Environment(BaseSettings):
    """The base of the model that reads and checks all settings at once."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")


SEPARATOR = re.compile(r"(?<!\\),")


def _split(value: Any) -> Any:
    """Split a comma-separated list, or all lists of a repeated flag, into items; `\\,` is a comma inside an item."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        return value
    return tuple(
        item.strip()
        for text in texts
        for one in SEPARATOR.split(text)
        if (item := one.replace("\\,", ",")).strip()
    )


def _size(value: Any) -> Any:
    return parse_size(value) if isinstance(value, str) else value


def _model_field(one: Declaration) -> tuple[Any, Any]:
    """Return a pair for pydantic: the annotation of a setting, and a field with its default and bounds."""
    annotation = one.annotation
    if annotation == tuple[str, ...]:
        annotation = Annotated[annotation, NoDecode, BeforeValidator(_split)]
    if one.is_size:
        annotation = Annotated[annotation, BeforeValidator(_size)]
    return annotation, Field(one.default, ge=one.ge, le=one.le, min_length=one.min_length)


_FIELDS: Any = {name: _model_field(one) for name, one in SETTINGS.items()}
_Reader = create_model("_Reader", __base__=_Environment, **_FIELDS)


def load_settings(**flags: Any) -> Settings:
    """Read settings from the environment and from the flags that are not None; a flag overrides the environment.

    Raises `Misconfigured` for an invalid setting, and for a flag that is no setting.
    """
    if unknown := flags.keys() - SETTINGS:
        raise Misconfigured(f"There is no setting {min(unknown)}.")
    strip_variables(os.environ)
    if (sentence := unprintable(os.environ)) is not None:
        raise Misconfigured(sentence)
    try:
        values = _Reader(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise Misconfigured(
            f"--{name} (HSPARSE_{name.upper().replace('-', '_')}): {first['msg'].removeprefix('Value error, ')}."
        ) from error

    def read(section: type) -> Any:
        return section(**{name: getattr(values, name) for name in declared_settings(section)})

    added = {section: read(section) for section in extension_sections()}
    return Settings(**{name: read(section) for name, section in SECTIONS.items()}, added=added)


def cache_directory() -> Path | None:
    """Return the cache directory of hsparse for this user, or None if the user has no home directory."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hsparse"
    except RuntimeError:
        return None


def exports_spans() -> bool:
    """Tell whether OpenTelemetry's standard variables ask for spans; its SDK reads all other `OTEL_` variables."""

    def value(name: str) -> str:
        return os.environ.get(f"OTEL_{name}", "").strip().lower()

    endpoint = value("EXPORTER_OTLP_TRACES_ENDPOINT") or value("EXPORTER_OTLP_ENDPOINT")
    exporter = value("TRACES_EXPORTER")
    asked = exporter == "otlp" or (not exporter and bool(endpoint))
    return asked and value("SDK_DISABLED") != "true"


def child_environment(node_token: str) -> dict[str, str]:
    """Return the environment for the process of a data node: the current variables, and the token of the nodes."""
    return {**os.environ, "HSPARSE_NODE_TOKEN": node_token}


def job_environment(settings: Settings) -> dict[str, str]:
    """Return the environment for the process of a job: the current variables without credentials, and S3 settings."""
    service = {
        "HSPARSE_S3_ENDPOINT": settings.store.s3_endpoint,
        "HSPARSE_S3_REGION": settings.store.s3_region,
        "HSPARSE_UNSIGNED": str(int(settings.store.unsigned)),
        "HSPARSE_REQUESTER_PAYS": str(int(settings.store.requester_pays)),
    }
    inherited = {name: value for name, value in os.environ.items() if name.upper() not in NOT_FOR_JOBS}
    return inherited | {name: value for name, value in service.items() if value is not None}
