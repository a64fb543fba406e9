"""The addresses that `hsparse.open` accepts: a URL, a path on a server, or a path in the directory of a store."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from hsparse.client.errors import InvalidValue
from hsparse.errors import BadRequest

SCHEMES = ("http", "https")
MARK = ".hsparse"
"""The name of a directory that only the root directory of a store has."""


NO_NAME = {"?": ("query", "%3F"), "#": ("fragment", "%23")}
"""Maps each character that the path of a URL cannot have to the part of a URL that it begins and its encoding."""


@dataclass(frozen=True, slots=True)
class Address:
    """The path of a domain or folder on the server whose URL is `endpoint`, or in the store in the directory `root`."""

    path: str
    endpoint: str | None = None
    root: Path | None = None


def parse_address(
    address: str | Path, endpoint: str | None, configured: str | None, root: str | Path | None = None
) -> Address:
    """Parse an address; return the path of a domain or folder together with its server or store.

    An address is a percent-encoded URL, `http://host:5101/home/ann/x.h5`; `hdf5://home/ann/x.h5` or `/home/ann/x.h5`
    with an `endpoint`; a file-system path in the directory of a store; or the path of a domain with the `root` of its
    store. Any other path names a domain of the `configured` server. If the URL of the `configured` server has a path, a
    URL below this path names a domain of the `configured` server.

    Raises `InvalidValue` for a URL with a query, a fragment or credentials, for `..`, and if no server is known.
    """
    text = str(address)
    scheme, separator, rest = text.partition("://")
    if root is not None:
        return Address(_absolute(text), root=Path(root))
    if separator and scheme.lower() in SCHEMES:
        if endpoint is not None:
            raise InvalidValue(f"The address is a URL: omit endpoint={endpoint!r}, or give only the path.")
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
    """Split the URL of a domain into a pair: the URL of the server, and the path, which is still percent-encoded."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    server = f"{scheme.lower()}://{host}"
    parse_endpoint(server)
    for mark, (part, code) in NO_NAME.items():
        if mark in path:
            raise InvalidValue(
                f"The path {slash + path!r} of the URL must not have a {part}, which begins with {mark}: write "
                f"{mark} as {code} if the name contains {mark}, or give the path alone with endpoint=."
            )
    above = (configured or "").rstrip("/")
    if above.startswith(f"{server}/") and f"{slash}{path}/".startswith(f"{above.removeprefix(server)}/"):
        return above, slash + path[len(above.removeprefix(server)) :]
    return server, slash + path


def parse_endpoint(url: str) -> SplitResult:
    """Parse the URL of a server; raise `InvalidValue`, with a message without the password, if the URL is invalid."""
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_known = False
    if not is_known or not url.isprintable() or " " in url:
        raise InvalidValue(
            f"{url.rpartition('@')[2]!r} is not the URL of a server: give a URL like http://localhost:5101."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidValue("The URL must not have a user or password: give user= and password= instead.")
    for mark, (part, _) in NO_NAME.items():
        if mark in url:
            raise InvalidValue(f"The server's URL {url!r} must have no {part}: omit {mark} and the rest.")
    return parts


def _decoded(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidValue(f"The path {path!r} of the URL must be percent-encoded UTF-8.") from error


def _store_above(path: Path) -> Path | None:
    whole = path.absolute()
    return next((one for one in (whole, *whole.parents) if (one / MARK).is_dir()), None)


def _absolute(path: str) -> str:
    """Return the path of a domain with a slash before each component and no slash at its end; the top is `/`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidValue(f"The path {path!r} must not have the component '..': name the folder itself.")
    return "/" + "/".join(parts)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is `localhost` or a loopback address, so only this machine can reach it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_domain(path: str) -> None:
    """Raise `BadRequest` if `path` is a URL or is not an absolute path."""
    if path.partition("://")[0].lower() in SCHEMES:
        raise BadRequest(
            f"{path.rpartition('@')[2]!r} is a URL: give the URL of the server by --endpoint, and only the path here."
        )
    if not path.startswith("/"):
        raise BadRequest(f"The domain {path!r} must be an absolute path, such as /home/user/file.h5.")
