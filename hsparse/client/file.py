"""`hsparse.open`: a domain as a file of arrays, or a folder of domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from hsparse.client.anndata.frame_labels import FrameLabels
from hsparse.client.connection import Connection, Json
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.errors import AlreadyExists, InvalidValue, MissingKey
from hsparse.client.group import Group
from hsparse.client.http.address import Address, parse_address
from hsparse.client.http.retry import Retry
from hsparse.client.http.sign_in import SignIn, read_sign_in
from hsparse.client.sources.elements import Direct
from hsparse.errors import Conflict, NotFound
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.anndata.query import Choice, Query
    from hsparse.client.progress import Progress

Mode: TypeAlias = Literal["r+", "a", "w", "x"]
PAGE = 1000
READER = OptionalModule("hsparse.client.anndata.anndata_reader")
LAZY = OptionalModule("hsparse.client.anndata.lazy_anndata")
ENCODER = OptionalModule("hsparse.client.anndata.element_encoder")
WRITER = OptionalModule("hsparse.client.anndata.element_writer")
QUERY = OptionalModule("hsparse.client.anndata.query")
"""Imported when they are used: a first value should not wait for them."""


class File(Group):
    """A domain: its root group. Closing it closes its connections; every write was durable before."""

    def __init__(self, connection: Connection, record: Json) -> None:
        self._names = FrameLabels(connection, record["root"])
        super().__init__(connection, {"id": record["root"]}, "/", self._names.of)
        self.filename = connection.domain or "/"
        self.owner: str = record.get("owner", "")

    def __repr__(self) -> str:
        return f"<File {self.filename} of {self.connection.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def refresh(self) -> None:
        """Forget what `query` and labels keep: the objects of the domain, and the names of rows and columns."""
        self._names.forget()

    def to_anndata(self, path: str = "/", *, lazy: bool = False, progress: Progress = None) -> Any:
        """Return the AnnData at a path, equal to `anndata.read_h5ad` of the domain's file.

        It takes two requests, or some more for large values. With `lazy`, X, layers, obsm, varm, obsp, varp and raw
        are dask arrays, whose blocks are read when they are computed. Needs the extra `anndata`, lazy ones dask too.
        `progress` is as in `SparseDataset.to_numpy`; lazy ones have none.
        """
        self.refresh()
        tree = self._names.tree(path)
        return LAZY.load().read_lazy(tree) if lazy else READER.load().read_anndata(tree, progress)

    def write_anndata(
        self,
        data: Any,
        path: str = "/",
        *,
        chunks: Sequence[int] | None = None,
        filters: Sequence[Any] | None = None,
        progress: Progress = None,
    ) -> None:
        """Store an AnnData, so that `to_anndata` returns it, and `anndata.read_h5ad` reads the domain's file.

        Others see nothing of it before all is stored. Sparse matrices become sparse datasets, written in bands; X and
        layers may be dask arrays or backed. `chunks` are those of X and layers, `filters` those of matrices and large
        arrays. `AlreadyExists` if the group has such elements; `WrongType` for what AnnData's files have no form for.
        """
        elements = ENCODER.load().EncodedElements()
        elements.add_anndata(data)
        group = self.require_group(path) if path.strip("/") else self
        writer = WRITER.load().ElementWriter(self.connection, main=data.shape, chunks=chunks, filters=filters)
        writer.write(elements, group.id, progress)
        self.refresh()

    def query(
        self,
        obs: Choice = None,
        var: Choice = None,
        *,
        layer: str | None = None,
        columns: Sequence[str] | None = None,
        var_columns: Sequence[str] | None = None,
        layers: Sequence[str] = (),
        obsm: Sequence[str] = (),
        varm: Sequence[str] = (),
        obsp: Sequence[str] = (),
        varp: Sequence[str] = (),
        path: str = "/",
    ) -> Query:
        """Choose rows and columns of the AnnData at a path; only what is needed is read, by one or two requests.

        `obs` and `var` are a condition (`"cell_type == 'B cell' and n_genes > 500"`), names, indices or a mask.
        `layer` becomes X: its name, or `"raw"`. `columns` are those of obs, all unless they are named; the elements of
        `layers`, `obsm` and so on only if they are. The objects of the domain are asked for at the first query, and
        kept until `refresh`.

            f.query(obs="cell_type == 'B cell'", var=["CD3E", "NKG7"]).to_anndata()
        """
        wanted = QUERY.load().Wanted(
            layer,
            None if columns is None else tuple(columns),
            None if var_columns is None else tuple(var_columns),
            *map(tuple, (layers, obsm, varm, obsp, varp)),
        )
        query: Query = QUERY.load().Query(self._names.tree(path), obs, var, wanted)
        return query


class Folder(Mapping[str, "File | Folder"]):
    """A folder of domains and folders: a mapping from their names, asked for when they are needed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name = connection.domain or "/"

    def __repr__(self) -> str:
        return f"<Folder {self.name} of {self.connection.url}>"

    def __getitem__(self, name: str) -> File | Folder:
        path = f"{self.name.rstrip('/')}/{name.strip('/')}"
        return open_connection(self.connection.for_domain(path))

    def __iter__(self) -> Iterator[str]:
        for record in self.records():
            yield record["name"].rsplit("/", 1)[-1]

    def __len__(self) -> int:
        return sum(1 for _ in self.records())

    def __bool__(self) -> bool:
        return True

    def records(self) -> Iterator[Json]:
        """Yield what the server says of each domain and folder in it: `name`, `class`, `owner`, times."""
        marker: str | None = None
        path = f"{self.name.rstrip('/')}/"
        while True:
            connection = self.connection.for_domain(path)
            page = connection.json("GET", "/domains", Limit=PAGE, Marker=marker)["domains"]
            yield from page
            if len(page) < PAGE:
                return
            marker = page[-1]["name"]

    def create_folder(self, name: str) -> Folder:
        """Create a folder; `AlreadyExists` if there is one or a domain."""
        connection = self.connection.for_domain(f"{self.name.rstrip('/')}/{name}")
        _create(connection, {"folder": 1})
        return Folder(connection)

    def close(self) -> None:
        self.connection.close()


def open(
    address: str | Path,
    mode: Mode = "r+",
    *,
    endpoint: str | None = None,
    root: str | Path | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    timeout: float = 60.0,
    retries: int = 2,
    patience: float = 60.0,
    direct: Direct = None,
    max_bytes: int | None = None,
) -> File | Folder:
    """Open a domain or a folder: of a server, or of a store in a directory of this machine.

    `address` is `http://host:5101/home/ann/x.h5`, a domain's path together with `endpoint`, or a path into a store's
    directory (`data/home/ann/x.h5`, or the domain's path with `root`), which is then read and written in this process.
    `mode` is "r+" for what exists, "a" to create the domain if it is missing, "w" to replace it, "x" to create it.
    Without `user` and `password`, or `token`, the environment and `~/.hscfg` are looked at
    (`hsparse.client.http.sign_in`).
    `timeout` is in seconds without a byte. A server that is busy is asked again for `patience` seconds, as it says by
    `Retry-After`; one that does not answer `retries` times, if the request only reads.

    A result of more than `max_bytes`, by default a third of the memory, is refused before it is fetched.

    `direct` says how chunks are read to be decoded here: None where it pays (from a directory of this machine, or from
    the server as they are stored), True past the server as it offers it, the store's directory or bucket (`s3://name`)
    with the user's own credentials, "server" always from it, False not at all. Raises `MissingKey` for a domain that is
    not there.
    """
    if mode not in ("r+", "a", "w", "x"):
        raise InvalidValue(f"There is no mode {mode!r}: give 'r+', 'a', 'w' or 'x'.")
    configured = SignIn() if root is not None else read_sign_in()
    if root is not None:
        found = Address("/" + str(address).strip("/"), root=Path(root))
    else:
        found = parse_address(address, endpoint, configured.endpoint)
    retry = Retry(retries + 1, patience)
    connection = connect(found, configured, SignIn(endpoint, user, password, token), timeout, retry)
    connection.direct = direct
    if max_bytes is not None:
        connection.max_bytes = max_bytes
    try:
        if mode != "r+":
            return _create_file(connection, mode)
        return open_connection(connection)
    except BaseException:
        connection.close()
        raise


def connect(address: Address, configured: SignIn, given: SignIn, timeout: float, retry: Retry) -> Connection:
    """Return a connection to an address of a server; the credential is `given`, else the `configured` one."""
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
    )


def open_connection(connection: Connection) -> File | Folder:
    """Return the domain or folder of a connection; `MissingKey` if there is none."""
    if connection.domain in (None, "/"):
        return Folder(connection)
    try:
        record = connection.json("GET", "/")
    except NotFound as error:
        raise MissingKey(
            f"There is no domain {connection.domain} at {connection.url}; mode='a' would create it."
        ) from error
    return File(connection, record) if "root" in record else Folder(connection)


def _create_file(connection: Connection, mode: Mode) -> File:
    if mode == "w":
        with suppress(NotFound):
            connection.json("DELETE", "/")
    try:
        return File(connection, _create(connection, {}))
    except AlreadyExists:
        if mode != "a":
            raise
    found = open_connection(connection)
    if not isinstance(found, File):
        raise InvalidValue(f"{connection.domain} is a folder; name a domain in it.")
    return found


def _create(connection: Connection, body: dict[str, Any]) -> Json:
    try:
        return connection.json("PUT", "/", body)
    except Conflict as error:
        raise AlreadyExists(error.message) from error
