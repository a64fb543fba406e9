"""`hsparse.open`: a domain as a file of arrays, or a folder of domains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from hsparse.client.acls import Acls
from hsparse.client.connection import NEVER_CHANGES, Connection, Json
from hsparse.client.creation import Filter
from hsparse.client.embedded import EmbeddedConnection
from hsparse.client.errors import AlreadyExists, InvalidValue, MissingFile
from hsparse.client.group import COMPLETIONS, NO_OPTIONS, WRITER, Group
from hsparse.client.http.address import Address, parse_address
from hsparse.client.http.retry import Retry
from hsparse.client.http.sign_in import SignIn, read_sign_in
from hsparse.client.indexing.frame_labels import FrameLabels
from hsparse.client.sources.elements import Direct
from hsparse.client.versions import Versions, remedy_for_missing, snapshot_domain
from hsparse.errors import Conflict, Gone, HsparseError, NotFound
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from anndata import AnnData

    from hsparse.client.integrations.anndata.element_encoder import EncodedElements
    from hsparse.client.integrations.anndata.query import Choice, Query
    from hsparse.client.progress import Progress

Mode: TypeAlias = Literal["r", "r+", "a", "w", "x", "w-"]
PAGE = 1000
OF_DOMAIN = ("connection", "id", "name", "attrs", "filename", "owner", "_labels_of", "_names")
"""What a file has once there is its domain."""
READER = OptionalModule("hsparse.client.integrations.anndata.anndata_reader")
LAZY = OptionalModule("hsparse.client.integrations.anndata.lazy_anndata")
ENCODER = OptionalModule("hsparse.client.integrations.anndata.element_encoder")
QUERY = OptionalModule("hsparse.client.integrations.anndata.query")
"""Imported when they are used: a first value should not wait for them."""


class File(Group, Versions):
    """A domain: its root group. After `close` it and its objects refuse to be used; every write was durable before.

    >>> with hsparse.open("data/home/admin/run.h5") as file:
    ...     print(list(file), file["X"].shape, file.filename, file.owner)
    ['X'] (4, 3) /home/admin/run.h5 admin
    """

    _unmade: Connection | None = None
    """The connection to a domain that is made when the file is first used, in the place of `_old` if there is one."""
    _old: File | None = None
    _is_new = False
    """Whether the domain was made for this file, and nothing was written to it before it was opened."""

    def __init__(self, connection: Connection, record: Json, *, is_new: bool = False) -> None:
        self._unmade, self._old, self._is_new = None, None, is_new
        if "snapshot" in record:
            connection.is_read_only, connection.snapshot = True, record["snapshot"]
        self._names = FrameLabels(connection, record["root"])
        super().__init__(connection, {"id": record["root"]}, "/", self._names)
        self.filename = connection.domain or "/"
        self.owner: str = record.get("owner", "")

    @classmethod
    def _to_replace(cls, old: File) -> Self:
        """Return a file that replaces another one when it is first used, or closed."""
        file = cls.__new__(cls)
        file._unmade, file._old = old.connection, old
        return file

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Make the domain, of which some attribute is needed."""
            if self._unmade is None or name not in OF_DOMAIN:
                raise AttributeError(f"A File has no {name}.")
            if self._old is not None:
                with suppress(NotFound):
                    self._unmade.json("DELETE", "/")
            self.__init__(self._unmade, _create(self._unmade, {}), is_new=True)
            return getattr(self, name)

    def _unmake(self) -> None:
        """Delete a domain again that was made for this file, if nothing is in it; it is made again when it is used."""
        with suppress(HsparseError):
            if self._is_new and not len(self) and not len(self.attrs):
                connection = self.connection
                connection.json("DELETE", "/")
                for name in OF_DOMAIN:
                    del self.__dict__[name]
                self._unmade, self._is_new = connection, False

    def __repr__(self) -> str:
        return f"<File {self.filename} of {self.connection.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._unmake()
        if error is None or self._unmade is None:
            self.close()
        else:
            self._unmade.close()

    @property
    def mode(self) -> str:
        """ "r" if the file was opened to be read, else "r+".

        >>> f.mode, hsparse.open("data/home/admin/run.h5", "r").mode
        ('r+', 'r')
        """
        return "r" if self.connection.is_read_only else "r+"

    @property
    def acls(self) -> Acls:
        """Who may do what: a mapping from names of users to their rights.

        >>> f.acls["ann"] = ["read", "update"]
        >>> sorted(f.acls["ann"])
        ['read', 'update']
        """
        return Acls(self.connection)

    def flush(self) -> None:
        """Send what waits in a `batch`; all else is durable already.

        >>> with f.batch():
        ...     group = f.create_group("runs")
        ...     f.flush()
        """
        self.connection.check_open()

    def close(self) -> None:
        """Close the connections; the file is false then, and its groups and datasets raise `InvalidValue`.

        >>> f.close()
        >>> bool(f)
        False
        >>> f["X"]
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: /home/admin/run.h5 is closed: open it again.
        """
        self.connection.close()

    def refresh(self) -> None:
        """Forget what `query` and labels keep: the objects of the domain, and the names of rows and columns.

        >>> before = cells.query("n_genes > 0").n_obs
        >>> cells.refresh()
        >>> cells.query("n_genes > 0").n_obs == before
        True
        """
        self._names.forget()

    def to_anndata(self, path: str = "/", *, lazy: bool = False, progress: Progress = None) -> AnnData:
        """Return the AnnData at a path, equal to `anndata.read_h5ad` of the domain's file.

        It takes two requests, or some more for large values. With `lazy`, X, layers, obsm, varm, obsp, varp and raw
        are dask arrays, whose blocks are read when they are computed. Needs the extra `anndata`, lazy ones dask too.
        `progress` is as in `SparseDataset.to_numpy`; lazy ones have none.

        >>> data = cells.to_anndata()
        >>> data.shape, data.obs["cell_type"].tolist(), data.var_names.tolist()
        ((4, 3), ['T', 'B', 'NK', 'T'], ['CD3E', 'NKG7', 'MS4A1'])
        >>> type(cells.to_anndata(lazy=True).X).__name__
        'Array'
        """
        self.refresh()
        while True:
            tree = self._names.tree(path)
            try:
                return LAZY.load().read_lazy(tree) if lazy else READER.load().read_anndata(tree, progress)
            except (NotFound, Gone, Conflict):
                self.refresh()
                if self._names.tree(path).records == tree.records:
                    raise  # else others have replaced it meanwhile

    def write_anndata(
        self,
        data: AnnData,
        path: str = "/",
        *,
        chunks: Sequence[int] | None = None,
        filters: Sequence[Filter] | None = None,
        overwrite: bool = False,
        progress: Progress = None,
    ) -> None:
        """Store an AnnData, so that `to_anndata` returns it, and `anndata.read_h5ad` reads the domain's file.

        Others see nothing of it before all is stored, and with `overwrite` the AnnData that was there until then: also
        that of a domain which is opened with mode "w", if this is the first that is done with it. Sparse matrices
        become sparse datasets, written in bands; X and layers may be dask arrays or backed. `chunks` are those of X and
        layers, `filters` those of matrices and large arrays. `AlreadyExists` if the group has such elements;
        `WrongType` for what AnnData's files have no form for. Then nothing is changed, and no domain is made.

        >>> f.write_anndata(adata, "rna", chunks=(2, 3))
        >>> f["rna/X"].shape, list(f["rna"])
        ((4, 3), ['X', 'layers', 'obs', 'obsm', 'obsp', 'uns', 'var', 'varm', 'varp'])
        >>> f.to_anndata("rna").n_obs
        4
        """
        try:
            elements = ENCODER.load().EncodedElements()
            elements.add_anndata(data)
            self._write_elements(
                elements,
                path,
                READER.load().PARTS if overwrite else (),
                progress,
                {"main": data.shape, "chunks": chunks, "filters": filters},
            )
        except BaseException:
            self._unmake()
            raise
        self.refresh()

    def _write_elements(
        self,
        elements: EncodedElements,
        path: str,
        replaced: Collection[str],
        progress: Progress = None,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> None:
        """Write elements at a path; all that there is gives way to them if the file has still to replace it."""
        old = self._old
        if old is None:
            super()._write_elements(elements, path, replaced, progress, options)
            return
        writer = WRITER.load().ElementWriter(old.connection, **options)
        elements = elements.below(path.strip("/"))
        writer.write(elements, old, replaced=set(old), progress=progress)
        self._take_over(elements.groups.get("", {}))

    def _take_over(self, attributes: Collection[str]) -> None:
        old = self._old
        assert old is not None
        for name in set(old.attrs) - set(attributes):
            del old.attrs[name]
        self.__dict__.update(old.__dict__)

    def query(
        self,
        obs: Choice = None,
        var: Choice = None,
        *,
        layer: str | None = None,
        columns: Sequence[str] | None = None,
        var_columns: Sequence[str] | None = None,
        layers: Sequence[str] | None = None,
        obsm: Sequence[str] | None = None,
        varm: Sequence[str] | None = None,
        obsp: Sequence[str] | None = None,
        varp: Sequence[str] | None = None,
        uns: bool = True,
        raw: bool = True,
        path: str = "/",
    ) -> Query:
        """Choose rows and columns of the AnnData at a path; only what is needed is read, by one or two requests.

        `obs` and `var` are a condition (`"cell_type == 'B cell' and n_genes > 500"`), names, indices or a mask.
        `layer` becomes X: its name, or `"raw"`, which has other columns. An AnnData of the query has all else, as
        `data[rows, columns].copy()` has it: of `layers`, `obsm` and so on, as of the `columns` of obs, those alone that
        are named, none for `[]`. The objects of the domain are asked for at the first query, and
        kept until `refresh`.

        >>> found = cells.query(obs="cell_type == 'T' and n_genes > 1", var=["MS4A1", "CD3E"])
        >>> found.to_anndata().to_df()
            MS4A1  CD3E
        c0    2.0   1.0
        """
        wanted = QUERY.load().Wanted(
            layer,
            *(
                None if names is None else tuple(names)
                for names in (columns, var_columns, layers, obsm, varm, obsp, varp)
            ),
            uns,
            raw,
        )
        query: Query = QUERY.load().Query(self._names.tree(path), obs, var, wanted)
        return query


class Folder(Mapping[str, "File | Folder"]):
    """A folder of domains and folders: a mapping from their names, asked for when they are needed.

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
        return list(islice(self, COMPLETIONS))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> File | Folder:
        """Return the domain or folder of a name; `MissingKey` if there is none.

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
        """Yield what the server says of each domain and folder in it: `name`, `class`, `owner`, times.

        >>> [record["name"] for record in hsparse.open("data/home").records()]
        ['/home/admin']
        """
        marker: str | None = None
        path = f"{self.name.rstrip('/')}/"
        while True:
            connection = self.connection.for_domain(path)
            page = connection.json("GET", "/domains", Limit=PAGE, Marker=marker)["domains"]
            yield from page
            if len(page) < PAGE:
                return
            marker = page[-1]["name"]

    @property
    def acls(self) -> Acls:
        """Who may do what in the folder, see `Acls`; domains that are created in it get the same.

        >>> folder = hsparse.open("data/home/admin")
        >>> folder.acls["ann"] = ["read"]
        >>> sorted(folder.acls["ann"])
        ['read']
        """
        return Acls(self.connection)

    def create_folder(self, name: str) -> Folder:
        """Create a folder; `AlreadyExists` if there is one or a domain.

        >>> hsparse.open("data/home/admin").create_folder("2026").name
        '/home/admin/2026'
        """
        connection = self.connection.for_domain(f"{self.name.rstrip('/')}/{name}")
        _create(connection, {"folder": 1})
        return Folder(connection)

    def close(self) -> None:
        """Close the connections; what was opened by it stays open.

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
    """Open a domain or a folder: of a server, or of a store in a directory of this machine.

    `address` is `http://host:5101/home/ann/x.h5`, a domain's path together with `endpoint`, or a path into a store's
    directory (`data/home/ann/x.h5`, or the domain's path with `root`), which is then read and written in this process.
    `mode` is "r" to read what exists, "r+", the default, to change it too, "a" to create the domain if it is missing,
    "w" to replace it, "x" (or "w-") to create it. With "w" the old domain is there until the file is first used, or
    closed; if it is used by `write_anndata`, `from_scipy` or the like, until all is stored. The snapshots
    of the old domain may go with it.
    `snapshot` is the number of one of the domain's snapshots, which is read as it is at `x.h5@3`, and never changes.
    `username` is h5pyd's word for `user`. Without a user and a password, or a `token`, the environment and `~/.hscfg`
    are looked at (`hsparse.client.http.sign_in`).
    `timeout` is in seconds without a byte. A server that is busy is asked again for `patience` seconds, as it says by
    `Retry-After`; one that does not answer `retries` times, if the request only reads. `proxy` and `ca_file` are as in
    `Connection`.

    A result of more than `max_bytes`, by default a third of the memory, is refused before it is fetched.

    `direct` says how chunks are read to be decoded here: None where it pays (from a directory of this machine, or from
    the server as they are stored), True past the server as it offers it, the store's directory or bucket (`s3://name`)
    with the user's own credentials, "server" always from it, False not at all. A domain that is not there is a
    `KeyError` and a `FileNotFoundError`.

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
        raise InvalidValue("user and username are the same: give one of them.")
    configured = SignIn() if root is not None else read_sign_in()
    if root is not None:
        found = Address("/" + str(address).strip("/"), root=Path(root))
    else:
        found = parse_address(address, endpoint, configured.endpoint)
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
        if connection.is_read_only:  # as a snapshot is, which the path may name, too
            _check_reads(found.path, mode)
        return opened
    except BaseException:
        connection.close()
        raise


def connect(
    address: Address, configured: SignIn, given: SignIn, timeout: float, retry: Retry, **route: Any
) -> Connection:
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
        **route,
    )


def open_connection(connection: Connection) -> File | Folder:
    """Return the domain or folder of a connection; `MissingFile` if there is none."""
    if connection.domain in (None, "/"):
        return Folder(connection)
    try:
        record = connection.json("GET", "/")
    except NotFound as error:
        remedy = remedy_for_missing(connection.domain)
        raise MissingFile(f"There is no domain {connection.domain} at {connection.url}; {remedy}") from error
    return File(connection, record) if "root" in record else Folder(connection)


def _check_reads(path: str, mode: Mode | None) -> None:
    """Raise `InvalidValue` for a mode that would change a snapshot."""
    if mode not in (None, "r"):
        raise InvalidValue(f"{path} {NEVER_CHANGES} mode={mode!r} would change it; 'r' reads it.")


def create_file(connection: Connection, mode: Mode | None) -> File:
    if mode == "w":
        with suppress(NotFound):
            old = open_connection(connection)
            if not isinstance(old, File):
                raise InvalidValue(f"{connection.domain} is a folder; name a domain in it.")
            return File._to_replace(old)
    try:
        return File(connection, _create(connection, {}), is_new=True)
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
