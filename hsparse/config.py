"""Settings: the only reader of the environment, into frozen values.

A setting is declared once, in the section of the part that uses it (`hsparse.setting`). Every setting `some_name`
has the flag `--some-name` and the variable `HSPARSE_SOME_NAME`; a flag wins over the variable, the variable over
the default. Sizes are in bytes, times in seconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, create_model
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hsparse.dn.data_settings import DataSettings
from hsparse.errors import Misconfigured
from hsparse.setting import Declaration, declared_settings, setting
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.store_settings import StoreSettings

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The address of a process, and its log level."""

    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(5101, "port to listen on; 0 takes a free one", ge=0, le=65535)
    log_level: str = setting("WARNING", "DEBUG, INFO, WARNING or ERROR")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The data nodes, and the id of this one."""

    dn: int = setting(
        0, "run this many data nodes as processes of their own; 0: inside", ge=0, le=64, commands=("serve",)
    )
    nodes: tuple[str, ...] = setting(
        (), "URLs of all data nodes, comma-separated, the same list on every node", commands=("sn", "dn")
    )
    node_id: str = setting(
        "dn-001", "name of this data node: its place in --nodes, from dn-001 on", commands=("dn",)
    )
    listen_fd: int | None = setting(
        None, "inherited socket to listen on, instead of --host and --port", commands=("dn",)
    )
    node_token: SecretStr = setting(
        SecretStr(""), "secret that all nodes of an installation share", commands=()
    )


@dataclass(frozen=True, slots=True)
class SignInSettings:
    """Who may sign in, and how."""

    password_file: Path | None = setting(None, "file of users and password hashes; see `hsparse user`")
    key_file: Path | None = setting(None, "file of API keys; see `hsparse key`")
    group_file: Path | None = setting(None, "file of groups, one line each: `group: user user`")
    admins: tuple[str, ...] = setting(
        (), "users, and groups as g:name, who have every right; comma-separated"
    )
    user: str = setting("admin", "whom every request acts as when nobody can sign in")
    oidc_issuer: str | None = setting(None, "URL of an OpenID Connect issuer whose bearer tokens sign in")
    oidc_audience: tuple[str, ...] = setting(
        (), "audiences, comma-separated: a token must be for one of them"
    )
    oidc_user_claim: str = setting("sub", "claim of a token that is the user's name", min_length=1)
    oidc_group_claim: str | None = setting(None, "claim of a token that lists the user's groups")
    oidc_leeway: float = setting(60.0, "by how much clocks may differ, for tokens; seconds", ge=0, le=600)

    @property
    def signs_in(self) -> bool:
        """Whether requests authenticate: by passwords, API keys or tokens."""
        return any(one is not None for one in (self.password_file, self.key_file, self.oidc_issuer))


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process, by section."""

    server: ServerSettings
    cluster: ClusterSettings
    sign_in: SignInSettings
    store: StoreSettings
    service: ServiceSettings
    data: DataSettings

    def check_exposure(self) -> None:
        """Raise `Misconfigured` if the server would listen beyond this machine without authentication."""
        if self.server.host not in LOOPBACK and not self.sign_in.signs_in:
            raise Misconfigured(
                f"Without --password-file, --key-file or --oidc-issuer the server is open to whoever reaches it: "
                f"it listens on 127.0.0.1 only, not on {self.server.host}. Add users with "
                "`hsparse user add NAME --password-file FILE`."
            )

    def check_node_exposure(self) -> None:
        """Raise `Misconfigured` if a data node would listen beyond this machine without a token."""
        if self.server.host not in LOOPBACK and not self.cluster.node_token.get_secret_value():
            raise Misconfigured(
                f"A data node that listens on {self.server.host} needs a secret: set HSPARSE_NODE_TOKEN, "
                "the same on every node."
            )


SECTIONS: dict[str, type] = get_type_hints(Settings)
"""The type of each section, by its name in `Settings`."""
SETTINGS: dict[str, Declaration] = {
    name: one for section in SECTIONS.values() for name, one in declared_settings(section).items()
}
"""All settings, by name."""


class _Environment(BaseSettings):
    """The base of the model that reads and checks all settings at once."""

    model_config = SettingsConfigDict(env_prefix="HSPARSE_", frozen=True, extra="ignore")


def _split(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(item.strip() for item in value.split(",") if item.strip())


def _model_field(one: Declaration) -> tuple[Any, Any]:
    """Return the annotation and default of a setting, for pydantic."""
    annotation = one.annotation
    if annotation == tuple[str, ...]:
        annotation = Annotated[annotation, NoDecode, BeforeValidator(_split)]
    return annotation, Field(one.default, ge=one.ge, le=one.le, min_length=one.min_length)


_FIELDS: Any = {name: _model_field(one) for name, one in SETTINGS.items()}
_Reader = create_model("_Reader", __base__=_Environment, **_FIELDS)


def load_settings(**flags: Any) -> Settings:
    """Return the settings from flags (None: not given) over the environment; `Misconfigured` names a bad one."""
    try:
        values = _Reader(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise Misconfigured(
            f"--{name} (HSPARSE_{name.upper().replace('-', '_')}): {first['msg']}."
        ) from error
    return Settings(
        **{
            name: section(**{field: getattr(values, field) for field in declared_settings(section)})
            for name, section in SECTIONS.items()
        }
    )


def child_environment(node_token: str) -> dict[str, str]:
    """Return the environment of a data node's process: this one's, and the secret, which must not be in a flag."""
    return {**os.environ, "HSPARSE_NODE_TOKEN": node_token}


def job_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a job's process: this one's and the S3 service, without the nodes' secret."""
    service = {
        "HSPARSE_S3_ENDPOINT": settings.store.s3_endpoint,
        "HSPARSE_S3_REGION": settings.store.s3_region,
    }
    inherited = {name: value for name, value in os.environ.items() if name != "HSPARSE_NODE_TOKEN"}
    return inherited | {name: value for name, value in service.items() if value is not None}
