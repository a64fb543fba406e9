"""The way to a server: the proxy in front of it, and the authorities whose certificates are trusted.

`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` are read as other programs read them, in small letters first. OpenSSL reads
`SSL_CERT_FILE` and `SSL_CERT_DIR`; the authorities in `HSPARSE_CA_FILE` are trusted beside those.
"""

from __future__ import annotations

import base64
import os
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hsparse.client.errors import InvalidValue
from hsparse.client.http.address import is_loopback

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; `headers` has its credential, if there is one."""

    host: str
    port: int
    headers: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Return the proxy of a URL, `http://user:password@host:port`, or of `host:port`."""
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, port = parts.hostname, parts.port or PORTS["http"]
        except ValueError:
            parts, host, port = urlsplit("wrong:"), None, 0
        if parts.scheme != "http" or not host:  # not repeated whole: it may have a password
            raise InvalidValue(
                f"The proxy {parts.scheme}://{host} cannot be used: give one as http://host:port, by proxy= or "
                "HTTPS_PROXY, or name the server in NO_PROXY."
            )
        if parts.username is None:
            return cls(host, port, {})
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(host, port, {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"})


def proxy_for(scheme: str, host: str, port: int | None, given: str | None = None) -> Proxy | None:
    """Return the proxy for a server: `given`, none if that is empty, else that of the environment.

    By the environment this machine has none.
    """
    if given is None and not is_loopback(host) and not _is_excepted(host.lower(), port or PORTS[scheme]):
        given = _variable(f"{scheme}_proxy")
    return Proxy.parse(given) if given else None


def trusted_authorities(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities, and those in a PEM file, by default `HSPARSE_CA_FILE`."""
    path = ca_file or os.environ.get("HSPARSE_CA_FILE")
    context = ssl.create_default_context()
    if path:
        try:
            context.load_verify_locations(path)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InvalidValue(f"{path} has no certificates in PEM ({reason}): give a CA's file.") from error
    return context


def _variable(name: str) -> str:
    """Return a variable in small letters or capitals; a CGI program's `HTTP_PROXY` is a header of its client."""
    found = os.environ.get(name)
    if found is None and not (name == "http_proxy" and "REQUEST_METHOD" in os.environ):
        found = os.environ.get(name.upper())
    return found or ""


def _is_excepted(host: str, port: int) -> bool:
    """Say whether `NO_PROXY` has the server: by its name, a domain above, its address or network, also with a port."""
    for entry in _variable("no_proxy").lower().split(","):
        name, only = entry.strip(), ""
        if name.count(":") == 1 or "]:" in name:
            name, _, only = name.rpartition(":")
        if not name or (only and only != str(port)):
            continue
        name = name.strip("[]").removeprefix("*").removeprefix(".")
        if not name or host == name or host.endswith(f".{name}"):
            return True
        with suppress(ValueError):
            if ip_address(host) in ip_network(name, strict=False):
                return True
    return False
