"""The class of an open domain: a file of arrays, which may also store an AnnData."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hsparse.client.acls import Acls
from hsparse.client.connection import Connection, Json
from hsparse.client.creation import Filter
from hsparse.client.errors import AlreadyExists
from hsparse.client.group import NO_OPTIONS, WRITER, Group
from hsparse.client.indexing.frame_labels import FrameLabels
from hsparse.client.versions import Versions
from hsparse.errors import Conflict, Gone, HsparseError, NotFound
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from anndata import AnnData

    from hsparse.client.integrations.anndata.element_encoder import EncodedElements
    from hsparse.client.integrations.anndata.query import AnnDataQuery, Choice
    from hsparse.client.progress import Progress

OF_DOMAIN = ("connection", "id", "name", "attrs", "filename", "owner", "_labels_of", "_names")
"""The attributes that a `File` lacks before its domain is created; see `_unmade`."""
READER = OptionalModule("hsparse.client.integrations.anndata.anndata_reader")
LAZY = OptionalModule("hsparse.client.integrations.anndata.lazy_anndata")
ENCODER = OptionalModule("hsparse.client.integrations.anndata.element_encoder")
QUERY = OptionalModule("hsparse.client.integrations.anndata.query")
"""These modules are imported at their first use, because their import would delay the first read of a value."""


OF_ANNDATA = {
    "shape": "f['X'].shape",
    "X": "f['X']",
    "uns": "f['uns']",
    "n_obs": "f['X'].shape[0]",
    "n_vars": "f['X'].shape[1]",
    "obs_names": "f.query().obs_names",
    "var_names": "f.query().var_names",
}
"""Maps an attribute of AnnData that a `File` lacks to the expression that gives its value."""


class File(Group, Versions):
    """An open domain; the file is also its root group. Writes are durable at once. A closed file raises errors.

    >>> with hsparse.open("data/home/admin/run.h5") as file:
    ...     print(list(file), file["X"].shape, file.filename, file.owner)
    ['X'] (4, 3) /home/admin/run.h5 admin
    """

    _unmade: Connection | None = None
    """The connection to a domain that the first use of the file will create, in place of `_old` if set; or None."""
    _old: File | None = None
    _is_new = False
    """Whether this file has created its domain, so that the domain was empty."""

    def __init__(self, connection: Connection, record: Json, *, is_new: bool = False) -> None:
        self._bind(connection, record, is_new=is_new)

    def _bind(self, connection: Connection, record: Json, *, is_new: bool) -> None:
        """Set the attributes that depend on the domain; `record` is the JSON of the domain."""
        self._unmade, self._old, self._is_new = None, None, is_new
        if "snapshot" in record:
            connection.is_read_only, connection.snapshot = True, record["snapshot"]
        self._names = FrameLabels(connection, record["root"])
        super().__init__(connection, {"id": record["root"]}, "/", self._names)
        self.filename = connection.domain or "/"
        self.owner: str = record.get("owner", "")

    @classmethod
    def _to_replace(cls, old: File) -> Self:
        """Return a file that replaces the file `old` when the new file is first used or closed."""
        file = cls.__new__(cls)
        file._unmade, file._old = old.connection, old
        return file

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Create the domain of the file if the attribute needs the domain, and return the attribute."""
            if self._unmade is None or name not in OF_DOMAIN:
                where = OF_ANNDATA.get(name)
                raise AttributeError(f"A File has no {name}{f': see {where}' if where else ''}.")
            if self._old is not None:
                with suppress(NotFound):
                    self._unmade.json("DELETE", "/")
            self._bind(self._unmade, create_domain(self._unmade, {}), is_new=True)
            return getattr(self, name)

    def _unmake(self) -> None:
        """Delete the domain if this file has created it and it is empty; the next use creates the domain again."""
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
        """The mode of the file: "r" if the file was opened read-only, or else "r+".

        >>> f.mode, hsparse.open("data/home/admin/run.h5", "r").mode
        ('r+', 'r')
        """
        return "r" if self.connection.is_read_only else "r+"

    @property
    def acls(self) -> Acls:
        """The access control list of the domain: a mapping from user names to rights; see `Acls`.

        >>> f.acls["ann"] = ["read", "update"]
        >>> sorted(f.acls["ann"])
        ['read', 'update']
        """
        return Acls(self.connection)

    def flush(self) -> None:
        """Send the objects that wait in a `batch`; all other writes are durable already.

        >>> with f.batch():
        ...     group = f.create_group("runs")
        ...     f.flush()
        """
        self.connection.check_open()

    def close(self) -> None:
        """Close the connections. `bool(file)` becomes False, and later requests of its objects raise `InvalidValue`.

        >>> f.close()
        >>> bool(f)
        False
        >>> f["X"]
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: /home/admin/run.h5 is closed: open it again.
        """
        self.connection.close()

    def refresh(self) -> None:
        """Drop the cached objects and labels of the domain; the next use reads them again, with all changes.

        >>> before = cells.query("n_genes > 0").n_obs
        >>> cells.refresh()
        >>> cells.query("n_genes > 0").n_obs == before
        True
        """
        self._names.forget()

    def to_anndata(self, path: str = "/", *, lazy: bool = False, progress: Progress = None) -> AnnData:
        """Read and return the AnnData at a path; it equals the AnnData that `anndata.read_h5ad` reads from the file.

        A read sends two requests, or more for large values. With `lazy`, X, layers, obsm, varm, obsp, varp and raw are
        dask arrays, whose blocks are read when they are computed. Needs the extra `anndata`; `lazy` also needs dask.
        For `progress` see `SparseDataset.to_numpy`; `lazy` ignores `progress`.

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
                    raise  # otherwise it was replaced meanwhile

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
        """Store an AnnData at a path, in the file format of AnnData, so that `to_anndata` can read it again.

        Other clients do not see the AnnData until it is stored completely. Until then, they see the old AnnData with
        `overwrite`, or the old domain if the file was opened with mode "w" and this call is its first use.
        Sparse matrices become sparse datasets, written in bands; X and layers may be dask arrays or backed. `chunks`
        applies to X and layers, `filters` to matrices and large arrays. Raises `AlreadyExists` if the group has
        elements of the same names, or `WrongType` if the file format of AnnData cannot store a value; after either
        error nothing has changed, and no domain was created.

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
        """Write elements at a path; if this file will replace an old file, replace all objects of the old file."""
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
    ) -> AnnDataQuery:
        """Return a query for rows and columns of the AnnData at a path; the query reads only the data that it needs.

        `obs` chooses the rows and `var` the columns, each by a condition (`"cell_type == 'B cell' and n_genes > 500"`),
        names, indices or a mask. `layer` is the name of the layer to use as X, or `"raw"`, which has its own columns.
        The AnnData of a query has all elements, like `data[rows, columns].copy()`, unless `layers`, `obsm`, `varm`, ...
        list the names of elements to read; `columns` and `var_columns` list columns of obs and var. The list of the
        domain's objects is cached until `refresh`.

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
        query: AnnDataQuery = QUERY.load().AnnDataQuery(self._names.tree(path), obs, var, wanted)
        return query


def create_domain(connection: Connection, body: Json) -> Json:
    """Create the domain or folder of a connection and return its record; raise `AlreadyExists` if the path exists."""
    try:
        return connection.json("PUT", "/", body)
    except Conflict as error:
        raise AlreadyExists(error.message) from error
