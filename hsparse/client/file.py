"""A domain as a file of arrays."""

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
    from hsparse.client.integrations.anndata.query import Choice, Query
    from hsparse.client.progress import Progress

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
            self.__init__(self._unmade, create_domain(self._unmade, {}), is_new=True)
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


def create_domain(connection: Connection, body: Json) -> Json:
    """Create what a connection is to, and return its record; `AlreadyExists` if it is there."""
    try:
        return connection.json("PUT", "/", body)
    except Conflict as error:
        raise AlreadyExists(error.message) from error
