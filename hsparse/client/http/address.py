"""What `hsparse.open` is given: a URL, a path on a configured server, or one into a store's directory."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hsparse.client.errors import InvalidValue
from hsparse.errors import BadRequest

MARK = ".hsparse"
"""The directory that a store in a directory has at its root."""


@dataclass(frozen=True, slots=True)
class Address:
    """The path of a domain or folder on a server, whose URL is `endpoint`, or in the store in the directory `root`."""

    path: str
    endpoint: str | None = None
    root: Path | None = None


def parse_address(address: str | Path, endpoint: str | None, configured: str | None) -> Address:
    """Return what an address names.

    `http://host:5101/home/ann/x.h5`, also percent-encoded; `hdf5://home/ann/x.h5`, or `/home/ann/x.h5` together with an
    `endpoint`; a path of a file system that leads through a store's directory. Else it is a domain of the `configured`
    server, and `InvalidValue` if there is none.
    """
    text = str(address)
    scheme, separator, rest = text.partition("://")
    if separator and scheme in ("http", "https"):
        parts = urlsplit(text)
        if endpoint is not None:
            raise InvalidValue(f"{text!r} is a URL: with endpoint={endpoint!r}, give the path alone.")
        return Address(_absolute(unquote(parts.path)), f"{scheme}://{parts.netloc}")
    if separator and scheme == "hdf5":
        text = _absolute(rest)
    elif separator:
        raise InvalidValue(f"{text!r} begins with {scheme}://; give http://, https://, hdf5:// or a path.")
    elif endpoint is None and (root := _store_above(Path(text))) is not None:
        return Address(_absolute(Path(text).absolute().relative_to(root).as_posix()), root=root)
    if endpoint or configured:
        return Address(_absolute(text), endpoint or configured)
    raise InvalidValue(
        f"{text!r} is neither a URL nor in the directory of a store: give http://HOST:PORT{_absolute(text)}, set "
        "HSPARSE_ENDPOINT, or name a store's directory with root=."
    )


def _store_above(path: Path) -> Path | None:
    whole = path.absolute()
    return next((one for one in (whole, *whole.parents) if (one / MARK).is_dir()), None)


def _absolute(path: str) -> str:
    """Return the path of a domain: with one slash in front, none behind; the top is `/`."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def is_loopback(host: str) -> bool:
    """Say whether a name or an address is this machine's own."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_domain(path: str) -> None:
    """Raise `BadRequest` for text that is no domain path, before any request."""
    if not path.startswith("/"):
        raise BadRequest(f"The domain {path!r} must be an absolute path, such as /home/user/file.h5.")
