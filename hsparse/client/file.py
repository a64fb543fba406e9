"""A domain opened as a file of arrays."""

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
"""The attributes that a `File` lacks until its domain is created; see `_unmade`."""
READER = OptionalModule("hsparse.client.integrations.anndata.anndata_reader")
LAZY = OptionalModule("hsparse.client.integrations.anndata.lazy_anndata")
ENCODER = OptionalModule("hsparse.client.integrations.anndata.element_encoder")
QUERY = OptionalModule("hsparse.client.integrations.anndata.query")
"""These modules are imported on first use, because they would delay reading a first value."""


OF_ANNDATA = {
    "shape": "f['X'].shape",
    "X": "f['X']",
    "uns": "f['uns']",
    "n_obs": "f['X'].shape[0]",
    "n_vars": "f['X'].shape[1]",
    "obs_names": "f.query().obs_names",
    "var_names": "f.query().var_names",
}
"""Where a `File` has the values that AnnData offers as attributes."""


class File(Group, Versions):
    """A domain, as its root group. Once closed, the file and its objects refuse requests; writes are durable at once.

    >>> with hsparse.open("data/home/admin/run.h5") as file:
    ...     print(list(file), file["X"].shape, file.filename, file.owner)
    ['X'] (4, 3) /home/admin/run.h5 admin
    """

    _unmade: Connection | None = None
    """The connection to a domain that is created, replacing `_old` if set, when the file is first used."""
    _old: File | None = None
    _is_new = False
    """Whether the domain was created for this file, with nothing written to it before."""

    def __init__(self, connection: Connection, record: Json, *, is_new: bool = False) -> None:
        self._bind(connection, record, is_new=is_new)

    def _bind(self, connection: Connection, record: Json, *, is_new: bool) -> None:
        """Set the attributes that depend on the domain, whose record is `record`."""
        self._unmade, self._old, self._is_new = None, None, is_new
        if "snapshot" in record:
            connection.is_read_only, connection.snapshot = True, record["snapshot"]
        self._names = FrameLabels(connection, record["root"])
        super().__init__(connection, {"id": record["root"]}, "/", self._names)
        self.filename = connection.domain or "/"
        self.owner: str = record.get("owner", "")

    @classmethod
    def _to_replace(cls, old: File) -> Self:
        """Return a file that replaces another one when it is first used or closed."""
        file = cls.__new__(cls)
        file._unmade, file._old = old.connection, old
        return file

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Create the domain if an attribute that needs it is read."""
            if self._unmade is None or name not in OF_DOMAIN:
                where = OF_ANNDATA.get(name)
                raise AttributeError(f"A File has no {name}{f': see {where}' if where else ''}.")
            if self._old is not None:
                with suppress(NotFound):
                    self._unmade.json("DELETE", "/")
            self._bind(self._unmade, create_domain(self._unmade, {}), is_new=True)
            return getattr(self, name)

    def _unmake(self) -> None:
        """Delete a domain created for this file if it is empty; it is created again on the next use."""
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
        """ "r" if the file was opened read-only, else "r+".

        >>> f.mode, hsparse.open("data/home/admin/run.h5", "r").mode
        ('r+', 'r')
        """
        return "r" if self.connection.is_read_only else "r+"

    @property
    def acls(self) -> Acls:
        """The access control list: a mapping from user names to rights.

        >>> f.acls["ann"] = ["read", "update"]
        >>> sorted(f.acls["ann"])
        ['read', 'update']
        """
        return Acls(self.connection)

    def flush(self) -> None:
        """Send what waits in a `batch`; everything else is durable already.

        >>> with f.batch():
        ...     group = f.create_group("runs")
        ...     f.flush()
        """
        self.connection.check_open()

    def close(self) -> None:
        """Close the connections. The file becomes false, and its groups and datasets raise `InvalidValue`.

        >>> f.close()
        >>> bool(f)
        False
        >>> f["X"]
        Traceback (most recent call last):
        hsparse.client.errors.InvalidValue: /home/admin/run.h5 is closed: open it again.
        """
        self.connection.close()

    def refresh(self) -> None:
        """Drop the cached objects of the domain and the cached labels, so that changes by others are seen.

        >>> before = cells.query("n_genes > 0").n_obs
        >>> cells.refresh()
        >>> cells.query("n_genes > 0").n_obs == before
        True
        """
        self._names.forget()

    def to_anndata(self, path: str = "/", *, lazy: bool = False, progress: Progress = None) -> AnnData:
        """Return the AnnData at a path, equal to `anndata.read_h5ad` of the domain's file.

        It takes two requests, or more for large values. With `lazy`, X, layers, obsm, varm, obsp, varp and raw are dask
        arrays, whose blocks are read when they are computed. Needs the extra `anndata`; `lazy` needs dask too.
        `progress` is as in `SparseDataset.to_numpy`, and is ignored with `lazy`.

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
        """Store an AnnData, so that `to_anndata` returns it and `anndata.read_h5ad` reads the domain's file.

        Other clients see nothing of it until all is stored. With `overwrite` they see the old AnnData until then. They
        also see the old domain until then if it was opened with mode "w" and this call is the first use of the file.
        Sparse matrices become sparse datasets, written in bands; X and layers may be dask arrays or backed. `chunks`
        apply to X and layers, `filters` to matrices and large arrays. Raises `AlreadyExists` if the group has elements
        of the same names, and `WrongType` for values that AnnData's file format cannot store; in both cases nothing is
        changed, and no domain is created.

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
        """Write elements at a path; if this file is to replace an old one, they replace all objects of the old file."""
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
        """Choose rows and columns of the AnnData at a path; only the needed data is read, in one or two requests.

        `obs` and `var` are a condition (`"cell_type == 'B cell' and n_genes > 500"`), names, indices or a mask. `layer`
        becomes X: the name of a layer, or `"raw"`, which has its own columns. An AnnData of the query has all elements,
        as `data[rows, columns].copy()` has; each of `layers`, `obsm`, ..., and `columns` for obs, limits its part to
        the names listed (`[]`: none). The first query reads the list of the domain's objects, which is cached until
        `refresh`.

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
    """Create the domain of a connection and return its record; raise `AlreadyExists` if it exists."""
    try:
        return connection.json("PUT", "/", body)
    except Conflict as error:
        raise AlreadyExists(error.message) from error
