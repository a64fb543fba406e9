"""Settings: the only reader of the environment and of files, into frozen values.

Every command-line flag `--some-name` is the variable `HSPARSE_SOME_NAME` and the field `some_name` here; a
flag wins over the variable, the variable over the default.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hsparse.dn.settings import DataSettings
from hsparse.errors import Misconfigured
from hsparse.sn.settings import ServiceSettings

MIB = 1024 * 1024
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
Names = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    """All there is to set. Sizes are in bytes, times in seconds."""

    model_config = SettingsConfigDict(env_prefix="HSPARSE_", frozen=True, extra="ignore")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(5101, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    root: Path | None = Field(None, description="directory to keep everything in (default: ./hsparse-data)")
    bucket: str | None = Field(None, description="S3 bucket to keep everything in, instead of a directory")
    s3_endpoint: str | None = Field(None, description="URL of the S3 service, when it is not AWS")
    s3_region: str | None = Field(None, description="region of the bucket")
    single_writer: bool = Field(
        False, description="declare that nothing else writes the store, if it ignores conditional puts"
    )
    password_file: Path | None = Field(
        None, description="file of users and password hashes; see `hsparse user`"
    )
    user: str = Field("admin", description="whom every request acts as when there is no password file")
    dn: int = Field(
        0, ge=0, le=64, description="run this many data nodes as processes of their own; 0: inside"
    )
    nodes: Names = Field(
        (), description="URLs of all data nodes, comma-separated, the same list on every node"
    )
    node_id: str = Field("dn-001", description="name of this data node: its place in --nodes, from dn-001 on")
    listen_fd: int | None = Field(
        None, description="inherited socket to listen on, instead of --host and --port"
    )
    node_token: SecretStr = Field(SecretStr(""), description="secret that all nodes of an installation share")
    cache_size: int = Field(128 * MIB, ge=MIB, description="memory of a data node for decoded objects")
    pending_size: int = Field(
        256 * MIB, ge=MIB, description="memory of a data node for writes not yet durable"
    )
    max_request_size: int = Field(100 * MIB, ge=MIB, description="largest body of a request")
    request_memory: int = Field(256 * MIB, ge=MIB, description="memory for the bodies of requests in flight")
    answer_memory: int = Field(256 * MIB, ge=MIB, description="memory for the parts of answers being made")
    page_size: int = Field(
        16 * MIB, ge=64 * 1024, description="how much of a large answer is in memory at a time"
    )
    put_log: bool = Field(
        True, description="put small objects through a log, in a process of its own (directories only)"
    )
    fsync: bool = Field(True, description="wait for the disk before answering a write (directories only)")
    log_level: str = Field("WARNING", description="DEBUG, INFO, WARNING or ERROR")

    @field_validator("nodes", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return (
            tuple(item.strip() for item in value.split(",") if item.strip())
            if isinstance(value, str)
            else value
        )

    def service(self, bucket: str) -> ServiceSettings:
        """Return what a service node is told."""
        return ServiceSettings(
            max_request_size=self.max_request_size,
            page_size=self.page_size,
            request_memory=self.request_memory,
            answer_memory=self.answer_memory,
            single_user=self.user if self.password_file is None else None,
            bucket=bucket,
        )

    def data(self) -> DataSettings:
        """Return what a data node is told."""
        return DataSettings(cache_size=self.cache_size, pending_size=self.pending_size)

    def check_exposure(self) -> None:
        """Raise `Misconfigured` when the server would listen beyond this machine without passwords."""
        if self.host not in LOOPBACK and self.password_file is None:
            raise Misconfigured(
                f"Without --password-file the server is open to whoever reaches it: it listens on 127.0.0.1 "
                f"only, not on {self.host}. Add users with `hsparse user add NAME --password-file FILE`."
            )

    def check_node_exposure(self) -> None:
        """Raise `Misconfigured` when a data node would listen beyond this machine without a token."""
        if self.host not in LOOPBACK and not self.node_token.get_secret_value():
            raise Misconfigured(
                f"A data node that listens on {self.host} needs a secret: set HSPARSE_NODE_TOKEN, "
                "the same on every node."
            )


def load_settings(**flags: Any) -> Settings:
    """Return the settings from flags (None: not given) over the environment; `Misconfigured` names a bad one."""
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise Misconfigured(
            f"--{name} (HSPARSE_{name.upper().replace('-', '_')}): {first['msg']}."
        ) from error


def child_environment(node_token: str) -> dict[str, str]:
    """Return the environment for a data node's process: this one's, and the secret, which no flag may show."""
    return {**os.environ, "HSPARSE_NODE_TOKEN": node_token}
