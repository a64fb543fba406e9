"""Groups of settings (sections): address and log, cluster, sign-in, and the settings of client commands.

The sections of stores and nodes are in the packages of stores and nodes. This module needs only the base install.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from hsparse.setting import setting


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The address, the timeouts and the log of a server process."""

    GROUP: ClassVar[str] = "Server"

    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(5101, "port to listen on; 0 takes a free one", ge=0, le=65535)
    idle_timeout: float = setting(
        300.0, "seconds that a connection may wait for a whole request header", ge=1, le=86400
    )
    drain_time: float = setting(
        0.0,
        "seconds after SIGTERM in which /readyz answers 503 and requests are still answered; then the server stops",
        ge=0,
        le=3600,
        commands=("serve", "sn"),
    )
    stop_timeout: float = setting(
        5.0, "seconds that requests in flight have to finish when the server stops", ge=0, le=3600
    )
    log_level: str = setting("WARNING", "DEBUG, INFO, WARNING or ERROR", group="Log")
    log_format: LogFormat = setting(LogFormat.TEXT, "form of the log's lines: text or json", group="Log")
    access_log: bool = setting(False, "log a line for each request", group="Log", commands=("serve", "sn"))
    slow_request: float = setting(
        10.0,
        "seconds after which a request is logged with what it did; 0: never",
        group="Log",
        ge=0,
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The nodes of a cluster: their number, address, lease and shared secret."""

    GROUP: ClassVar[str] = "Cluster"

    dn: int = setting(
        0, "run this many data nodes as processes; 0: one in this process", ge=0, le=64, commands=("serve",)
    )
    advertise: str | None = setting(
        None, "URL by which other nodes reach this data node (default: its address)", commands=("dn",)
    )
    lease: float = setting(
        1.0,
        "seconds after which a data node renews its lease, which lasts twice as long; then others take over",
        ge=0.05,
        le=30,
        commands=("serve", "dn"),
    )
    with_parent: bool = setting(
        False, "stop at the end of standard input: the parent process has ended", commands=("dn",)
    )
    node_token: str = setting("", "secret that all nodes of an installation share", commands=(), secret=True)


@dataclass(frozen=True, slots=True)
class SignInSettings:
    """Users and administrators."""

    GROUP: ClassVar[str] = "Sign-in"

    password_file: Path | None = setting(None, "file of users and password hashes; see `hsparse user`")
    group_file: Path | None = setting(None, "file of groups, one line each: `group: user user`")
    admins: tuple[str, ...] = setting(
        (), "users, and groups as g:name, who have every right; comma-separated"
    )
    user: str = setting("admin", "identity used when authentication is off")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The server and credentials of a client command. A secret has no flag, as all users of a machine can see flags."""

    GROUP: ClassVar[str] = "Server"

    endpoint: str = setting("http://127.0.0.1:5101", "URL of the server")
    ca_file: Path | None = setting(None, "PEM file of authorities to trust beside the system's")
    user: str | None = setting(
        None, "user who signs in; the password is asked for, or read as a line", group="Sign-in"
    )
    password: str | None = setting(None, "the user's password", commands=(), secret=True)
    token: str | None = setting(None, "an API key or token to sign in with", commands=(), secret=True)
    token_file: Path | None = setting(None, "file with an API key or token to sign in with", group="Sign-in")
    s3_endpoint: str | None = setting(None, "URL of the S3 service of FILE, when it is not AWS")
    s3_region: str | None = setting(None, "region of the bucket of FILE")
    unsigned: bool = setting(False, "send requests to the bucket of FILE without keys, for public buckets")
    requester_pays: bool = setting(False, "agree to pay for the requests to the bucket of FILE")
