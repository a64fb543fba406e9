"""`hsparse.open`, which opens a domain as a file of arrays, or opens a folder of domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, get_args

from hsparse.client.acls import Acls
from hsparse.client.connection import NEVER_CHANGES, Connection, Json
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.errors import AlreadyExists, InvalidValue, MissingFile
from hsparse.client.file import File, create_domain
from hsparse.client.group import MAX_COMPLETIONS
from hsparse.client.http.address import Address, parse_address
from hsparse.client.http.retry import Retry
from hsparse.client.http.sign_in import SignIn, read_sign_in
from hsparse.client.sources.elements import Direct
from hsparse.client.versions import remedy_for_missing, snapshot_domain
from hsparse.errors import NotFound

Mode: TypeAlias = Literal["r", "r+", "a", "w", "x", "w-"]
PAGE_MEMBERS = 1000


class Folder(Mapping[str, "File | Folder"]):
    """A folder: a mapping from names to domains and folders; each access sends a request.

    >>> folder = hsparse.open("data/home/admin")
    >>> "run.h5" in folder, folder["run.h5"].filename
    (True, '/home/admin/run.h5')
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name = connection.domain or "/"

    def __repr__(self) -> str:
        return f"<Folder {self.name} of {self.connection.url}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(islice(self, MAX_COMPLETIONS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> File | Folder:
        """Return the domain or folder at a name or relative path; raise `MissingKey` if it does not exist.

        >>> hsparse.open("data")["home"]["admin/run.h5"].filename
        '/home/admin/run.h5'
        """
        path = f"{self.name.rstrip('/')}/{name.strip('/')}"
        return open_connection(self.connection.for_domain(path))

    def __iter__(self) -> Iterator[str]:
        for record in self.records():
            yield record["name"].rsplit("/", 1)[-1]

    def __len__(self) -> int:
        return sum(1 for _ in self.records())

    def __bool__(self) -> bool:
        return not self.connection.is_closed

    def records(self) -> Iterator[Json]:
        """Yield the JSON of each domain and folder in this folder: `name` (a path), `class`, `owner` and times.

        >>> [record["name"] for record in hsparse.open("data/home").records()]
        ['/home/admin']
        """
        marker: str | None = None
        path = f"{self.name.rstrip('/')}/"
        while True:
            connection = self.connection.for_domain(path)
            page = connection.json("GET", "/domains", Limit=PAGE_MEMBERS, Marker=marker)["domains"]
            yield from page
            if len(page) < PAGE_MEMBERS:
                return
            marker = page[-1]["name"]

    @property
    def acls(self) -> Acls:
        """The access control list of the folder (see `Acls`); new domains in the folder get a copy of the list.

        >>> folder = hsparse.open("data/home/admin")
        >>> folder.acls["ann"] = ["read"]
        >>> sorted(folder.acls["ann"])
        ['read']
        """
        return Acls(self.connection)

    def create_folder(self, name: str) -> Folder:
        """Create a folder in this folder; raise `AlreadyExists` if a folder or domain has the same name.

        >>> hsparse.open("data/home/admin").create_folder("2026").name
        '/home/admin/2026'
        """
        connection = self.connection.for_domain(f"{self.name.rstrip('/')}/{name}")
        create_domain(connection, {"folder": 1})
        return Folder(connection)

    def close(self) -> None:
        """Close this folder; domains and folders that were opened through this folder stay open.

        >>> with hsparse.open("data/home") as folder:
        ...     file = folder["admin/run.h5"]
        >>> list(file), bool(folder)
        (['X'], False)
        """
        self.connection.close()


def open(
    address: str | Path,
    mode: Mode | None = None,
    *,
    snapshot: int | None = None,
    endpoint: str | None = None,
    root: str | Path | None = None,
    user: str | None = None,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    timeout: float = 60.0,
    retries: int = 2,
    patience: float = 60.0,
    direct: Direct = None,
    max_bytes: int | None = None,
    proxy: str | None = None,
    ca_file: str | Path | None = None,
) -> File | Folder:
    """Open a domain or a folder of a server, or of a store in a local directory.

    `address` is `http://host:5101/home/ann/x.h5`; or the path of a domain, with the URL of the server in `endpoint`; or
    a path in the directory of a store, which this process then serves (`data/home/ann/x.h5`, or the path of a domain

    with the directory in `root`). `mode` is "r" to read an existing domain, "r+" (default) to read and change it, "a"
    to also create a missing domain, "w" to replace or create it, or "x" (or "w-") to create it. With "w" the old domain
    stays until the file is first used or closed or, if the first use stores an AnnData or a matrix, until all is there;
    its snapshots may be deleted. `snapshot` is the number of a snapshot to read: 3 is the same as the path `x.h5@3`.

    `username` is h5pyd's name for `user`. If neither `user` nor `token` is given, credentials come from the environment
    and `~/.hscfg` (`hsparse.client.http.sign_in`). A request fails if no byte arrives for `timeout` seconds. If the
    server is busy, a request is retried for `patience` seconds; if the server does not answer, a read is retried
    `retries` times. For `proxy` and `ca_file` see `Connection`. A result larger than `max_bytes`, by default a third of
    the memory, raises an error before it is fetched.

    `direct` says how chunks are read: with None, the client decodes stored chunks if this is faster; with False, the
    server decodes; with "server", the client fetches stored chunks from the server; with True, it reads the store that
    the server names; and with a directory or bucket (`s3://name`), it reads this store with the user's credentials. A
    missing domain raises `MissingFile`, which is a `KeyError` and a `FileNotFoundError`.

    >>> with hsparse.open("data/home/admin/new.h5", "w") as file:
    ...     x = file.create_sparse("x", (4, 1000), "u2", (2, 1000))
    ...     x[0, [3, 5]] = [7, 9]
    >>> hsparse.open("data/home/admin/new.h5")["x"].nnz
    2
    >>> hsparse.open("data/home/admin/none.h5")
    Traceback (most recent call last):
    hsparse.client.errors.MissingFile: There is no domain /home/admin/none.h5 at ...; mode='a' would create it.
    >>> hsparse.open("data/home/admin/new.h5", max_bytes=1000)["x"].to_numpy()
    Traceback (most recent call last):
    hsparse.client.errors.ResultTooLarge: The result, of the shape [4, 1000], would have ...
    """
    if mode not in (None, *get_args(Mode)):
        raise InvalidValue(f"There is no mode {mode!r}: give 'r', 'r+', 'a', 'w' or 'x'.")
    if None not in (user, username):
        raise InvalidValue("user and username have the same meaning: give only one of them.")
    configured = SignIn() if root is not None else read_sign_in()
    found = parse_address(address, endpoint, configured.endpoint, root)
    if snapshot is not None:
        _check_reads(snapshot_domain(found.path, snapshot), mode)
        found = replace(found, path=snapshot_domain(found.path, snapshot))
    retry = Retry(retries + 1, patience)
    given = SignIn(endpoint, user or username, password, token)
    connection = connect(found, configured, given, timeout, retry, proxy=proxy, ca_file=ca_file)
    connection.direct = direct
    if max_bytes is not None:
        connection.max_bytes = max_bytes
    try:
        connection.is_read_only = mode == "r"
        is_made = mode not in (None, "r", "r+")
        opened = create_file(connection, mode) if is_made else open_connection(connection)
        if connection.is_read_only:  # a path can name a snapshot too
            _check_reads(found.path, mode)
        return opened
    except BaseException:
        connection.close()
        raise


def connect(
    address: Address, configured: SignIn, given: SignIn, timeout: float, retry: Retry, **route: Any
) -> Connection:
    """Return a connection to an address with the credential `given` or, if it is empty, the `configured` credential."""
    if address.root is not None:
        return EmbeddedConnection(address.root, address.path, timeout, retry)
    assert address.endpoint is not None
    if given.user is None and given.token is None:
        given = configured.for_server(address.endpoint)
    return Connection(
        address.endpoint,
        address.path,
        user=given.user,
        password=given.password,
        token=given.token,
        timeout=timeout,
        retry=retry,
        **route,
    )


def open_connection(connection: Connection) -> File | Folder:
    """Return the domain of a connection as a `File`, or its folder; raise `MissingFile` if neither exists."""
    if connection.domain in (None, "/"):
        return Folder(connection)
    try:
        record = connection.json("GET", "/")
    except NotFound as error:
        remedy = remedy_for_missing(connection.domain)
        raise MissingFile(f"There is no domain {connection.domain} at {connection.url}; {remedy}") from error
    return File(connection, record) if "root" in record else Folder(connection)


def _check_reads(path: str, mode: Mode | None) -> None:
    """Raise `InvalidValue` if `mode` would change the snapshot at a path."""
    if mode not in (None, "r"):
        raise InvalidValue(f"{path} {NEVER_CHANGES} To read the snapshot, give mode 'r', not {mode!r}.")


def create_file(connection: Connection, mode: Mode | None) -> File:
    if mode == "w":
        with suppress(NotFound):
            old = open_connection(connection)
            if not isinstance(old, File):
                raise InvalidValue(f"{connection.domain} is a folder: name a domain in the folder.")
            return File._to_replace(old)
    try:
        return File(connection, create_domain(connection, {}), is_new=True)
    except AlreadyExists:
        if mode != "a":
            raise
    found = open_connection(connection)
    if not isinstance(found, File):
        raise InvalidValue(f"{connection.domain} is a folder: name a domain in the folder.")
    return found
