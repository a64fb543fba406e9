"""The fsspec protocol `hsparse://`: folders, and domains as HDF5 files whose byte ranges the server generates.

`hsparse://host:5101/home/ann/cells.h5` is requested over http, `hsparse+https://...` over https. Files are read-only.
The protocol is registered as an entry point, so `fsspec.open` finds it if the extra `fsspec` is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue, NotImplementedHere
from hsparse.client.http.address import Address
from hsparse.client.http.retry import Retry
from hsparse.client.http.sign_in import SignIn, read_sign_in
from hsparse.client.opening import Folder, connect
from hsparse.errors import NotFound
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.optional_module import OptionalModule

SPEC = OptionalModule("fsspec.spec", "fsspec").load()
AbstractFileSystem: Any = SPEC.AbstractFileSystem
AbstractBufferedFile: Any = SPEC.AbstractBufferedFile
BLOCK_BYTES = 1 << 20
"""Bytes of a request; fsspec's cache keeps 32 such blocks of a file."""
SCHEMES = {"hsparse": "http", "hsparse+https": "https"}


class HsparseFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The domains and folders of the server at `endpoint`, a URL; paths are the server's paths.

    Without `user` and `password`, or `token`, credentials come from the environment and `~/.hscfg`, as in
    `hsparse.open`. `layout`, `revision` and `matrices` choose the form of the files (`GET /files`). `block_size`
    (bytes), `cache_type` and `cache_options` are the defaults for opened files. fsspec writes all options, **including
    credentials**, into the pickle and JSON of a file system.

    >>> with hsparse.open(f"{server}/fsspec.h5", "w") as file:
    ...     file["x"] = [1, 2, 3]
    >>> import fsspec
    >>> with fsspec.open(f"hsparse://{server.removeprefix('http://')}/fsspec.h5") as raw:
    ...     print(raw.read(4)[1:])
    b'HDF'
    """

    protocol = tuple(SCHEMES)
    root_marker = "/"

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        layout: str | None = None,
        revision: str | None = None,
        matrices: str | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        patience: float = 60.0,
        block_size: int = BLOCK_BYTES,
        cache_type: str = "blockcache",
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._caching: dict[str, Any] = {
            "block_size": block_size,
            "cache_type": cache_type,
            "cache_options": cache_options,
        }
        configured = read_sign_in()
        self.endpoint = endpoint or configured.endpoint
        if self.endpoint is None:
            raise InvalidValue("Name a server: hsparse://HOST:PORT/path, or endpoint='http://HOST:PORT'.")
        self._form = FileForm.parse(layout, revision, matrices)
        given = SignIn(self.endpoint, user, password, token)
        address = Address("/", self.endpoint)
        self._connection = connect(address, configured, given, timeout, Retry(retries + 1, patience))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return the path on the server, with a leading and without a trailing slash; names are not URL-decoded."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        scheme, separator, rest = text.partition("://")
        if separator and scheme in SCHEMES:
            text = rest.partition("/")[2]
        return "/" + text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        scheme, _, rest = path.partition("://")
        place = rest.partition("/")[0]
        return {"endpoint": f"{SCHEMES[scheme]}://{place}"} if scheme in SCHEMES and place else {}

    def unstrip_protocol(self, name: str) -> str:
        """Return the whole address of a path: protocol, server and path.

        >>> HsparseFileSystem("http://127.0.0.1:5101").unstrip_protocol("/home/ann/run.h5")
        'hsparse://127.0.0.1:5101/home/ann/run.h5'
        """
        scheme, _, place = str(self.endpoint).partition("://")
        protocol = next(own for own, http in SCHEMES.items() if http == scheme)
        return f"{protocol}://{place.rstrip('/')}{self._strip_protocol(name)}"

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """Return the entries of a folder; sizes of files are None, because each size would take a request: use `info`.

        >>> file = hsparse.open(f"{server}/ls.h5", "w")
        >>> "/ls.h5" in HsparseFileSystem(server).ls("/", detail=False)
        True
        """
        path = self._strip_protocol(path)
        if path != "/" and "root" in (record := self._record(path)):
            found = [self._file(path, record)]
        else:
            with _missing(path):
                found = [self._listed(one) for one in Folder(self._at(path)).records()]
        return found if detail else [one["name"] for one in found]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Return `name`, `type`, `size` (bytes; 0 for a folder), `created`, `modified`, and the `etag` of a file.

        >>> file = hsparse.open(f"{server}/info.h5", "w")
        >>> found = HsparseFileSystem(server).info("/info.h5")
        >>> found["type"], found["size"] > 0
        ('file', True)
        """
        path = self._strip_protocol(path)
        if path == "/":
            return {"name": "/", "type": "directory", "size": 0}
        record = self._record(path)
        return self._file(path, record) if "root" in record else self._listed(record | {"name": path})

    def ukey(self, path: str) -> str:
        """Return the etag of a file, which changes whenever the domain changes.

        >>> file = hsparse.open(f"{server}/key.h5", "w")
        >>> system = HsparseFileSystem(server)
        >>> before = system.ukey("/key.h5")
        >>> file["x"] = [1, 2, 3]
        >>> system.ukey("/key.h5") == before
        False
        """
        return str(self.info(path)["etag"])

    def checksum(self, path: str) -> int:
        """Return `ukey` as a number.

        >>> file = hsparse.open(f"{server}/sum.h5", "w")
        >>> HsparseFileSystem(server).checksum("/sum.h5") > 0
        True
        """
        return int.from_bytes(self.ukey(path).encode(), "big")

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> VirtualFile:
        if mode != "rb":
            raise NotImplementedHere("Files of hsparse:// can only be read: change them by hsparse.open.")
        options.pop("autocommit", None)
        given = {name: value for name, value in options.items() if value is not None}
        given |= {} if block_size is None else {"block_size": block_size}
        return VirtualFile(self, path, **self._caching | given)

    def fetch(self, path: str, start: int, stop: int, etag: str) -> bytes:
        """Return the bytes from `start` to `stop` of a file; raise `PreconditionFailed` if its etag changed.

        >>> file = hsparse.open(f"{server}/fetch.h5", "w")
        >>> system = HsparseFileSystem(server)
        >>> system.fetch("/fetch.h5", 1, 4, system.ukey("/fetch.h5"))
        b'HDF'
        """
        return self._domain_file(path).read(start, stop, etag)

    def _domain_file(self, path: str) -> DomainFile:
        return DomainFile(self._at(None), path, self._form)

    def _at(self, path: str | None) -> Connection:
        return self._connection.for_domain(path)

    def _record(self, path: str) -> Json:
        with _missing(path):
            return self._at(path).json("GET", "/")

    def _file(self, path: str, record: Json) -> dict[str, Any]:
        with _missing(path):
            size, etag = self._domain_file(path).state()
        return self._listed(record | {"name": path}) | {"type": "file", "size": size, "etag": etag}

    def _listed(self, record: Json) -> dict[str, Any]:
        kind = "directory" if record.get("class") == "folder" else "file"
        found = {"name": record["name"], "type": kind, "size": 0 if kind == "directory" else None}
        times = {"created": record.get("created"), "modified": record.get("lastModified")}
        return found | {name: value for name, value in times.items() if value is not None}


class VirtualFile(AbstractBufferedFile):  # type: ignore[misc]
    """A domain as a file, in its state at the time of opening; reads fail once the domain has changed.

    `details` is the result of `HsparseFileSystem.info`, which is called if `details` is None.

    >>> file = hsparse.open(f"{server}/virtual.h5", "w")
    >>> with HsparseFileSystem(server).open("/virtual.h5") as raw:
    ...     print(raw.size == raw.details["size"], raw.seek(1), raw.read(3))
    True 1 b'HDF'
    """

    def __init__(
        self,
        system: HsparseFileSystem,
        path: str,
        block_size: Any,
        details: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        known = details or system.info(path)
        super().__init__(system, path, "rb", block_size, **options | {"size": known["size"]})
        self.details = known
        self._cache_options = options

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.fs, self.path, self.blocksize, self.details, self._cache_options, self.loc)
        return _reopen, arguments

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.fetch(self.path, start, min(end, self.size), self.details["etag"])
        return data


def _reopen(
    system: HsparseFileSystem, path: str, block_size: int, details: Any, options: Any, place: int
) -> VirtualFile:
    file = VirtualFile(system, path, block_size, details, **options)
    file.seek(place)
    return file


@contextmanager
def _missing(path: str) -> Iterator[None]:
    """Replace `NotFound` by `FileNotFoundError`, which fsspec expects."""
    try:
        yield
    except NotFound as error:
        raise FileNotFoundError(f"There is no domain or folder {path}.") from error
