"""Addresses given to `hsparse.open`: a URL, a path on a configured server, or a path into a store's directory."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from hsparse.client.errors import InvalidValue
from hsparse.errors import BadRequest

SCHEMES = ("http", "https")
MARK = ".hsparse"
"""The directory that marks the root of a store in a local directory."""


NO_NAME = {"?": ("query", "%3F"), "#": ("fragment", "%23")}
"""By character that a URL's path cannot contain: the part of a URL that it begins, and its percent-encoding."""


@dataclass(frozen=True, slots=True)
class Address:
    """The path of a domain or folder on the server with URL `endpoint`, or in the store in the directory `root`."""

    path: str
    endpoint: str | None = None
    root: Path | None = None


def parse_address(
    address: str | Path, endpoint: str | None, configured: str | None, root: str | Path | None = None
) -> Address:
    """Return the server or store, and the path of a domain or folder, that an address names.

    An address is a percent-encoded URL, `http://host:5101/home/ann/x.h5`; `hdf5://home/ann/x.h5`, or `/home/ann/x.h5`
    with an `endpoint`; a file-system path that leads through a store's directory; or a domain's path with the store's
    `root`. Any other path is that of a domain of the `configured` server. If the URL of the `configured` server has a
    path, a URL below it is a domain of that server.

    Raises `InvalidValue` for a URL with a query, a fragment or credentials, for `..`, and if no server is known.
    """
    text = str(address)
    scheme, separator, rest = text.partition("://")
    if root is not None:
        return Address(_absolute(text), root=Path(root))
    if separator and scheme.lower() in SCHEMES:
        if endpoint is not None:
            raise InvalidValue(f"The address is a URL: with endpoint={endpoint!r}, give the path alone.")
        server, path = split_url(text, configured)
        return Address(_absolute(_decoded(path)), server)
    if separator and scheme == "hdf5":
        text = _absolute(rest)
    elif separator:
        raise InvalidValue(f"{text!r} begins with {scheme}://; give http://, https://, hdf5:// or a path.")
    elif endpoint is None and (store := _store_above(Path(text))) is not None:
        return Address(_absolute(Path(text).absolute().relative_to(store).as_posix()), root=store)
    if endpoint or configured:
        return Address(_absolute(text), endpoint or configured)
    raise InvalidValue(
        f"{text!r} is neither a URL nor in the directory of a store: give http://HOST:PORT{_absolute(text)}, set "
        "HSPARSE_ENDPOINT, or name a store's directory with root=."
    )


def split_url(url: str, configured: str | None = None) -> tuple[str, str]:
    """Split a domain's URL into the URL of the server and the still encoded path; see `parse_address`."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    server = f"{scheme.lower()}://{host}"
    parse_endpoint(server)
    for mark, (part, code) in NO_NAME.items():
        if mark in path:
            raise InvalidValue(
                f"The path {slash + path!r} has a {part}, from {mark} on, which no domain's name can have: write "
                f"{mark} as {code} if the name contains it, or give the path alone with endpoint=."
            )
    above = (configured or "").rstrip("/")
    if above.startswith(f"{server}/") and f"{slash}{path}/".startswith(f"{above.removeprefix(server)}/"):
        return above, slash + path[len(above.removeprefix(server)) :]
    return server, slash + path


def parse_endpoint(url: str) -> SplitResult:
    """Return the parts of a server's URL; raise `InvalidValue`, whose message has no password, for other text."""
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_known = False
    if not is_known or not url.isprintable() or " " in url:
        raise InvalidValue(
            f"{url.rpartition('@')[2]!r} is not the URL of a server; it should be like http://localhost:5101."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidValue("The URL has a user or a password: give them as user= and password=.")
    for mark, (part, _) in NO_NAME.items():
        if mark in url:
            raise InvalidValue(f"The URL {url!r} of the server has a {part}, from {mark} on: leave it out.")
    return parts


def _decoded(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidValue(f"The URL's path {path!r} is not percent-encoded UTF-8.") from error


def _store_above(path: Path) -> Path | None:
    whole = path.absolute()
    return next((one for one in (whole, *whole.parents) if (one / MARK).is_dir()), None)


def _absolute(path: str) -> str:
    """Return the normalized path of a domain: one slash in front, none at the end; the top is `/`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidValue(f"The path {path!r} has the component '..': name the folder itself.")
    return "/" + "/".join(parts)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_domain(path: str) -> None:
    """Raise `BadRequest` for text that is not a domain path, before any request is sent."""
    if path.partition("://")[0].lower() in SCHEMES:
        raise BadRequest(
            f"{path.rpartition('@')[2]!r} is a URL: give the server's by --endpoint, and the path of the domain alone."
        )
    if not path.startswith("/"):
        raise BadRequest(f"The domain {path!r} must be an absolute path, such as /home/user/file.h5.")
