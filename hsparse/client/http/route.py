"""The route to a server: the proxy that requests pass through, and the certificate authorities that are trusted.

`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` are read as in other programs; lower-case names have precedence. OpenSSL
reads `SSL_CERT_FILE` and `SSL_CERT_DIR`; the authorities in `HSPARSE_CA_FILE` are trusted in addition.
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
STRICT_CODES = range(80, 94)
"""OpenSSL's error codes for certificates that `VERIFY_X509_STRICT`, the default since Python 3.13, rejects."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; `headers` has the credential for the proxy, or is empty if the proxy needs no credential."""

    host: str
    port: int
    headers: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Parse `http://user:password@host:port` or `host:port`, and return the proxy with this address."""
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, port = parts.hostname, parts.port or PORTS["http"]
        except ValueError:
            parts, host, port = urlsplit("wrong:"), None, 0
        if parts.scheme != "http" or not host:  # not quoted whole, because it may have a password
            raise InvalidValue(
                f"The proxy {parts.scheme}://{host} cannot be used: give a URL http://host:port by proxy= or by "
                "HTTPS_PROXY, or name the server in NO_PROXY."
            )
        if parts.username is None:
            return cls(host, port, {})
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(host, port, {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"})


def proxy_for(scheme: str, host: str, port: int | None, given: str | None = None) -> Proxy | None:
    """Return the proxy for a server, or None: `given` (no proxy if ""), or the environment's proxy if `given` is None.

    A proxy of the environment does not apply to servers on this machine.
    """
    if given is None and not is_loopback(host) and not _is_excepted(host.lower(), port or PORTS[scheme]):
        given = _variable(f"{scheme}_proxy")
    return Proxy.parse(given) if given else None


def trusted_authorities(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """Return a context that trusts the authorities of the system and of a PEM file (default: `HSPARSE_CA_FILE`).

    With a PEM file, certificates may lack extensions that RFC 5280 requires, as in curl and in Python before 3.13: many
    private authorities omit such extensions, and users cannot change their authority.
    """
    path = ca_file or os.environ.get("HSPARSE_CA_FILE", "").rstrip("\r\n")
    context = ssl.create_default_context()
    if path:
        try:
            context.load_verify_locations(path)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InvalidValue(f"{path} has no PEM certificates ({reason}): give a CA's file.") from error
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def is_incomplete(error: ssl.SSLCertVerificationError) -> bool:
    """Return whether a certificate was rejected only because it lacks extensions that RFC 5280 requires."""
    return error.verify_code in STRICT_CODES


def _variable(name: str) -> str:
    """Return the variable with this lower-case name, or with the same name in upper case, or "" if neither is set.

    In a CGI program `HTTP_PROXY` is ignored, because a client can set it by the header `Proxy` of a request.
    """
    found = os.environ.get(name)
    if found is None and not (name == "http_proxy" and "REQUEST_METHOD" in os.environ):
        found = os.environ.get(name.upper())
    return found or ""


def _is_excepted(host: str, port: int) -> bool:
    """Return whether `NO_PROXY` lists the server: its name, a parent domain, its address or network, and maybe port."""
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
