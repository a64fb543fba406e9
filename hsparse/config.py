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
from hsparse.sn.settings import Compress, ServiceSettings

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
    key_file: Path | None = Field(None, description="file of API keys; see `hsparse key`")
    group_file: Path | None = Field(None, description="file of groups, one line each: `group: user user`")
    admins: Names = Field(
        (), description="users, and groups as g:name, who have every right; comma-separated"
    )
    oidc_issuer: str | None = Field(
        None, description="URL of an OpenID Connect issuer whose bearer tokens sign in"
    )
    oidc_audience: Names = Field(
        (), description="audiences, comma-separated: a token must be for one of them"
    )
    oidc_user_claim: str = Field("sub", min_length=1, description="claim of a token that is the user's name")
    oidc_group_claim: str | None = Field(None, description="claim of a token that lists the user's groups")
    oidc_leeway: float = Field(
        60.0, ge=0, le=600, description="by how much clocks may differ, for tokens; seconds"
    )
    user: str = Field("admin", description="whom every request acts as when nobody can sign in")
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
    cors_origins: Names = Field(
        ("*",),
        description="origins whose pages may ask from a browser, comma-separated; *: any; none: no page",
    )
    compress: Compress = Field(
        Compress.JSON, description="which answers to compress for clients that accept it: json, all or none"
    )
    rate_limit: float = Field(
        0.0, ge=0, le=1e6, description="requests a second that a user may send; 0: any number"
    )
    rate_burst: int = Field(
        0, ge=0, le=10**6, description="requests that a user may send at once; 0: those of ten seconds"
    )
    job_places: Names = Field(
        (),
        description="where jobs may read and write, comma-separated: s3://bucket/prefix/, file:///directory/",
    )
    jobs_at_once: int = Field(1, ge=1, le=64, description="jobs that a service node runs at a time")
    jobs_queued: int = Field(16, ge=0, le=1000, description="jobs that may wait for a service node")
    page_size: int = Field(
        16 * MIB, ge=64 * 1024, description="how much of a large answer is in memory at a time"
    )
    put_log: bool = Field(
        True, description="put small objects through a log, in a process of its own (directories only)"
    )
    fsync: bool = Field(True, description="wait for the disk before answering a write (directories only)")
    log_level: str = Field("WARNING", description="DEBUG, INFO, WARNING or ERROR")

    @field_validator("nodes", "admins", "oidc_audience", "cors_origins", "job_places", mode="before")
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
            single_user=None if self.signs_in else self.user,
            bucket=bucket,
            cors_origins=() if self.cors_origins == ("none",) else self.cors_origins,
            compress=self.compress,
            rate_limit=self.rate_limit,
            rate_burst=self.rate_burst,
            job_places=self.job_places,
            jobs_at_once=self.jobs_at_once,
            jobs_queued=self.jobs_queued,
        )

    def data(self) -> DataSettings:
        """Return what a data node is told."""
        return DataSettings(cache_size=self.cache_size, pending_size=self.pending_size)

    @property
    def signs_in(self) -> bool:
        """Whether requests say who they are: there are passwords, API keys or tokens to know them by."""
        return any(one is not None for one in (self.password_file, self.key_file, self.oidc_issuer))

    def check_exposure(self) -> None:
        """Raise `Misconfigured` when the server would listen beyond this machine and ask nobody who they are."""
        if self.host not in LOOPBACK and not self.signs_in:
            raise Misconfigured(
                f"Without --password-file, --key-file or --oidc-issuer the server is open to whoever reaches it: "
                f"it listens on 127.0.0.1 only, not on {self.host}. Add users with "
                "`hsparse user add NAME --password-file FILE`."
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


def job_environment(settings: Settings) -> dict[str, str]:
    """Return the environment for a job's process: this one's and the S3 service, without the nodes' secret."""
    service = {"HSPARSE_S3_ENDPOINT": settings.s3_endpoint, "HSPARSE_S3_REGION": settings.s3_region}
    inherited = {name: value for name, value in os.environ.items() if name != "HSPARSE_NODE_TOKEN"}
    return inherited | {name: value for name, value in service.items() if value is not None}
