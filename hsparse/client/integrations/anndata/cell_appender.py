"""Append cells to the AnnData of a domain: extend its datasets, or store its parts anew and link them by one change."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.errors import AlreadyExists, InvalidValue, WrongType
from hsparse.client.file import File
from hsparse.client.group import Group
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_encoder import (
    ANNDATA,
    CATEGORIES,
    PANDAS,
    EncodedElements,
    named_arrays,
)
from hsparse.client.integrations.anndata.element_reader import ElementReader
from hsparse.client.integrations.anndata.element_writer import MAX_INLINE_BYTES, ElementWriter
from hsparse.client.integrations.anndata.grown_matrix import GrownMatrix
from hsparse.client.integrations.anndata.matrix_rows import GivenRows, Rows, StoredRows, empty_rows
from hsparse.client.integrations.anndata.row_appender import LEAST_ROWS, AppendedRows, RowAppender
from hsparse.client.late_links import UncertainLink, delete_objects, link_objects
from hsparse.client.progress import Progress
from hsparse.client.types.hdf5_type import attribute_body
from hsparse.errors import Conflict, Gone, NotFound

if TYPE_CHECKING:
    from anndata import AnnData

Join: TypeAlias = Literal["inner", "outer"]
Table: TypeAlias = tuple[Any, Mapping[str, Any]]
"""A pair: a data frame, and a dict that maps names to arrays with the same rows."""
DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}
CHANGED = ("X", "layers", "obs", "var", "obsm", "varm", "raw")
"""The parts that an append reads and may replace."""
WITNESS = "obsp"
"""The name of the empty group by which concurrent appends are detected: each append links a new group there."""


def append_anndata(
    file: File,
    data: AnnData,
    path: str = "/",
    *,
    join: Join = "inner",
    unique_names: bool = False,
    progress: Progress = None,
) -> None:
    """Append the cells of an AnnData to the AnnData at a path of a file; readers see all new cells at once.

    `join` is as in `anndata.concat`, with the same default: "inner" keeps only the genes, columns of obs, layers and
    obsm arrays that both AnnDatas have. "outer" keeps all: new genes come last, and a value that one side lacks is an
    absent element in a sparse matrix and a missing value elsewhere. Stored genes keep their order and their
    columns of var and varm. uns does not change. X and layers keep their form and chunks.

    The cost depends only on the number of new cells if genes, columns, arrays and types do not change, and the stored
    datasets are extensible (as written by hsparse) and have at least 1,024 cells; otherwise X, layers, obs and obsm are
    stored anew. Raise `Conflict` if another client changes the AnnData meanwhile, and `InvalidValue` for a part that
    does not fit, for a new cell name that occurs twice and, with `unique_names`, for one that is stored already.

    >>> f.write_anndata(adata, "rna")
    >>> adata.obs_names = ["d0", "d1", "d2", "d3"]
    >>> hsparse.append_anndata(f, adata, "rna")
    >>> f["rna/X"].shape, f.query("cell_type == 'T'", path="rna").obs.index.tolist()
    ((8, 3), ['c0', 'c3', 'd0', 'd3'])
    """
    if join not in get_args(Join):
        raise InvalidValue(f"join is 'inner' or 'outer', not {join!r}.")
    if not isinstance(data, ANNDATA.load().AnnData):
        raise WrongType(f"append_anndata takes an AnnData, not a {type(data).__name__}.")
    file.refresh()
    appender = CellAppender(file, path, data, join)
    try:
        appender.check(unique_names=unique_names)
        if (rows := appender.rows()) is not None:
            appender.append(rows)
        else:
            appender.write(appender.elements(), progress)
    except (NotFound, Gone):
        appender.check_unchanged()  # the objects read may have been replaced and deleted
        raise
    file.refresh()


class CellAppender:
    """Appends the cells of an AnnData in memory to the AnnData of a domain."""

    def __init__(self, file: File, path: str, data: AnnData, join: Join) -> None:
        self._path, self._data, self._join = path.strip("/"), data, join
        self._witness: list[str] = []
        group = file[path] if self._path else file
        if not isinstance(group, Group):
            raise InvalidValue(
                f"{path} of {file.filename} is a dataset: name the group that has the AnnData."
            )
        self._group = group
        self._records = group.records()
        self._tree = tree = DomainTree(file.connection, self._records)
        if self._path:
            tree.name += f"/{self._path}"
        tree.require_anndata()
        if tree.is_legacy:
            raise InvalidValue(f"{tree.name} was written by AnnData before 0.7: rewrite it by write_anndata.")

    def check(self, *, unique_names: bool) -> None:
        """Raise `InvalidValue` for a part that cannot be appended to, or for cell names that would be repeated."""
        self._check_parts()
        new = self._data.obs_names
        twice = new[new.duplicated()]
        if unique_names:
            index = self._tree.index_path("obs")
            reader = ElementReader(self._tree)
            reader.want(index)
            reader.fetch()
            twice = twice.union(new[new.isin(reader.element(index))])
        if len(twice):
            raise InvalidValue(
                f"{len(twice)} cell names would be repeated, such as {twice[0]!r}: rename the cells, "
                "for example by data.obs_names = 'run2-' + data.obs_names."
            )

    def rows(self) -> AppendedRows | None:
        """Return the rows that extend the stored elements, or None if the append changes anything else."""
        tree, data, stored = self._tree, self._data, self._tree.frame_length("obs")
        unfinished = [path for path in tree.records if tree.records[path] is not self._records[path]]
        if stored < LEAST_ROWS or unfinished or not data.n_obs:
            return None
        obsm = tree.children("obsm")
        reader = ElementReader(tree)
        for path in ("obs", *(f"obsm/{name}" for name in obsm)):
            reader.want(path, np.arange(1))
        for part in ("var", "raw/var"):
            if part in tree:
                reader.want(part)
        reader.fetch()
        first = (reader.element("obs"), {name: reader.element(f"obsm/{name}") for name in obsm})
        cells = EncodedElements()
        joined = self._joined("obs", first, (data.obs, dict(data.obsm)), self._join)
        _add_table(cells, "obs", "obsm", joined)
        names = [path for path in cells.arrays if path in tree and path.endswith(CATEGORIES)]
        categories = {path: reader.element(path) for path in names}
        matrices: dict[str, tuple[Any, str]] = {}
        for root, given, some in self._matrices():
            if not some:
                continue
            columns, is_same = self._columns(reader, root, given)
            if not is_same:
                return None
            for path, matrix in some.items():
                grown = self._grown(path, matrix, columns)
                matrices[path] = grown[stored : grown.shape[0]], grown.kind
        return AppendedRows.fitting(tree, cells, categories, matrices)

    def append(self, rows: AppendedRows) -> None:
        """Append rows in place; remove these rows and raise `Conflict` if another client changed the AnnData meanwhile.

        The witness is linked after the rows were added, so a concurrent append that stores the old elements anew fails.
        """
        appender = RowAppender(self._tree, rows, self._conflict)
        try:
            appender.append()
            self._link_witness()
            found = self._group.records()
            if _ids_of_cells(found) != _ids_of_cells(self._records) or not appender.is_there(found):
                raise self._conflict()
        except BaseException:
            appender.undo()
            raise

    def elements(self) -> EncodedElements:
        """Return the elements that replace the stored ones; raise `InvalidValue` if an element does not fit."""
        tree, data, reader = self._tree, self._data, ElementReader(self._tree)
        for part in ("obs", "var", "obsm", "varm", "raw/var", "raw/varm"):
            if part in tree:
                reader.want(part)
        reader.fetch()
        found = EncodedElements()
        stored = (reader.element("obs"), self._arrays(reader, "obsm"))
        cells = self._joined("obs", stored, (data.obs, dict(data.obsm)), self._join)
        _add_table(found, "obs", "obsm", cells)
        found.groups["layers"] = dict(DICT)
        if "raw" in tree:
            found.groups["raw"] = {"encoding-type": "raw", "encoding-version": "0.1.0"}
        for root, given, matrices in self._matrices():
            columns, genes = self._genes(reader, root, given)
            if root:
                genes = genes or (reader.element("raw/var"), self._arrays(reader, "raw/varm"))
            if genes is not None:
                _add_table(found, f"{root}var", f"{root}varm", genes)
            for path, matrix in matrices.items():
                _add_matrix(found, path, self._grown(path, matrix, columns))
        found.extend_cells(tree.frame_length("obs") + data.n_obs)
        return found

    def write(self, elements: EncodedElements, progress: Progress) -> None:
        """Store the elements, and link them in place of the old elements; raise `Conflict` if these changed."""
        writer = ElementWriter(self._tree.connection)
        try:
            writer.write(
                elements, self._group, replaced=elements.names, progress=progress, confirm=self._confirm
            )
        except AlreadyExists as error:
            delete_objects(self._tree.connection, self._witness)
            raise self._conflict() from error

    def _confirm(self) -> dict[str, Json]:
        """Link this append's witness, and return the link, which must still exist when the new elements are linked.

        An append first links its own empty group, then checks that the AnnData is unchanged, and then links the new
        elements by a change that fails if the witness link leads to another group. If two appends have read the same
        AnnData, one of them fails: its group was replaced, or its check finds the cells of the other append.
        """
        self.check_unchanged()
        mine = self._link_witness()
        self.check_unchanged()
        return mine

    def _link_witness(self) -> dict[str, Json]:
        """Link a new empty group in place of the witness that was read, and return the link."""
        connection, group = self._tree.connection, self._group
        body = {"attributes": {name: attribute_body(value) for name, value in DICT.items()}}
        self._witness = [connection.json("POST", "/groups", body)["id"]]
        mine = {WITNESS: {"id": self._witness[0]}}
        try:
            link_objects(connection, group.id, mine, (WITNESS,))
        except UncertainLink as error:
            raise error.cause from None
        except BaseException:
            delete_objects(connection, self._witness)
            raise
        if WITNESS in self._tree:
            delete_objects(connection, [self._tree.record(WITNESS)["id"]])
        return mine

    def check_unchanged(self) -> None:
        """Raise `Conflict` if the AnnData has changed since it was read."""
        if _of_cells(self._group.records()) != _of_cells(self._records):
            raise self._conflict()

    def _conflict(self) -> Conflict:
        return Conflict(f"{self._tree.name} was changed by another client meanwhile: append the cells again.")

    # --- checks ---------------------------------------------------------------------------------------

    def _check_parts(self) -> None:
        tree, data = self._tree, self._data
        for path in ("X", "raw/X", *(f"layers/{name}" for name in tree.children("layers"))):
            if path in tree and tree.is_virtual(path):
                raise InvalidValue(
                    f"{path} of {tree.name} is virtual and cannot be appended to: append to one of its sources and "
                    "concatenate again, or concatenate with copy=True."
                )
        if children := tree.children(WITNESS):
            place = f"{self._path}/{WITNESS}/{children[0]}".lstrip("/")
            raise InvalidValue(
                f"{tree.name} has {WITNESS}/{children[0]}, which has no values for pairs with new cells: "
                f"delete it by del f[{place!r}] before appending, and compute it again afterwards."
            )
        if ("X" in tree) != (data.X is not None):
            which, other = ("the file", "the AnnData") if "X" in tree else ("the AnnData", "the file")
            raise InvalidValue(f"{which} has an X, but {other} has none: both or neither must have an X.")
        if "raw" in tree and data.raw is None:
            raise InvalidValue(
                f"{tree.name} has raw, but the AnnData to append has none: set raw of that AnnData, or del f['raw']."
            )

    def _layers(self) -> list[str]:
        stored, given = self._tree.children("layers"), named_arrays(self._data.layers)
        if self._join == "inner":
            return [name for name in stored if name in given]
        return list(dict.fromkeys([*stored, *given]))

    # --- frames and matrices --------------------------------------------------------------------------

    def _matrices(self) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Yield a triple for X and for raw: the prefix of paths, the given data, and the matrices (or None) by path."""
        data = self._data
        some = {} if data.X is None else {"X": data.X}
        yield "", data, some | {f"layers/{name}": data.layers.get(name) for name in self._layers()}
        if "raw" in self._tree:
            yield "raw/", data.raw, {"raw/X": data.raw.X}

    def _columns(self, reader: ElementReader, root: str, given: Any) -> tuple[list[NDArray[np.intp]], bool]:
        """Return a pair: the columns of the joined genes, and whether the joined genes are the stored genes.

        The columns are two arrays, for the stored and for the given matrix; a gene that the matrix lacks has -1.
        """
        old, new = reader.element(f"{root}var").index, PANDAS.load().Index(given.var_names)
        for names in (old, new):
            if not names.is_unique:
                raise InvalidValue(
                    f"{root}var has {names[names.duplicated()][0]!r} twice: genes are matched by name, "
                    "so make the names unique, for example by data.var_names_make_unique()."
                )
        is_new = ~new.isin(old)
        names = old[old.isin(new)] if self._join == "inner" else old.append(new[is_new])
        if not len(names) and len(old):
            raise InvalidValue(
                f"{root}var has no gene in common: the file has names like {old[0]!r}, the AnnData like "
                f"{new[:1].tolist()}; use the same kind of names, or join='outer'."
            )
        columns = [index.get_indexer(names) for index in (old, new)]
        return columns, len(names) == len(old) and not (self._join == "outer" and is_new.any())

    def _genes(
        self, reader: ElementReader, root: str, given: Any
    ) -> tuple[list[NDArray[np.intp]], Table | None]:
        """Return a pair: the columns as in `_columns`, and the new var and varm (None if they do not change)."""
        columns, is_same = self._columns(reader, root, given)
        if is_same:
            return columns, None
        if varp := self._tree.children(f"{root}varp"):
            raise InvalidValue(f"{root}varp/{varp[0]} does not fit the changed genes: delete it first.")
        var = reader.element(f"{root}var")
        table: Table = (var, self._arrays(reader, f"{root}varm"))
        if self._join == "outer":
            is_new = ~PANDAS.load().Index(given.var_names).isin(var.index)
            others = given.varm if len(is_new) else {}
            more = (given.var[is_new], {name: others[name][is_new] for name in others})
            return columns, self._joined(f"{root}var", table, more, "outer")
        kept = columns[0]
        return columns, (var.iloc[kept], {name: _taken(value, kept) for name, value in table[1].items()})

    def _arrays(self, reader: ElementReader, path: str) -> dict[str, Any]:
        """Return a dict that maps names to the arrays of a fetched part; it is empty if the part is missing."""
        found: dict[str, Any] = reader.element(path) if path in self._tree else {}
        return found

    def _joined(self, name: str, first: Table, second: Table, join: Join) -> Table:
        """Return the rows of `first` and `second`, joined as `anndata.concat` joins obs and obsm."""
        module = ANNDATA.load()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about repeated names, which genes may have
                parts = [module.AnnData(obs=frame, obsm=dict(arrays)) for frame, arrays in (first, second)]
                found = module.concat(parts, join=join)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise InvalidValue(f"{name} or {name}m does not fit that of the file: {error}") from error
        frame = found.obs
        frame.index.name = first[0].index.name
        for column in frame.columns:
            if frame[column].dtype == object and frame[column].isna().any():
                frame[column] = frame[column].astype("category")  # as AnnData does when it writes a file
        return frame, dict(found.obsm)

    def _grown(self, path: str, given: Any, columns: Sequence[NDArray[np.intp]]) -> GrownMatrix:
        stored = StoredRows(self._tree, path) if path in self._tree else None
        more = None if given is None else GivenRows.of(given)
        known: Any = stored or more
        parts: list[Rows] = []
        places: list[NDArray[np.intp]] = []
        lengths = (self._tree.frame_length("obs"), self._data.n_obs)
        for part, at, length in zip((stored, more), columns, lengths, strict=True):
            nothing = empty_rows(known.kind, (length, 0), known.dtype)
            parts.append(part or GivenRows(nothing, known.kind))
            places.append(at if part else np.full_like(at, -1))
        return GrownMatrix(path, parts, places)


def _taken(value: Any, rows: NDArray[np.intp]) -> Any:
    return value.iloc[rows] if hasattr(value, "iloc") else value[rows]


def _add_matrix(found: EncodedElements, path: str, grown: GrownMatrix) -> None:
    if 0 in grown.shape or (
        not grown.kind and grown.dtype.itemsize * np.prod(grown.shape) <= MAX_INLINE_BYTES
    ):
        found.add(path, grown[:])
    elif grown.kind:
        found.matrices[path] = grown, grown.kind
    else:
        found.arrays[path] = grown, {"encoding-type": "array", "encoding-version": "0.2.0"}


def _add_table(found: EncodedElements, frame: str, arrays: str, table: Table) -> None:
    found.add(frame, table[0])
    found.add(arrays, dict(table[1]))


def _of_cells(records: Mapping[str, Json]) -> dict[str, Json]:
    """Select the records that an append depends on: the parts in `CHANGED`, and the objects in the witness group."""
    return {
        path: record
        for path, record in records.items()
        if path.partition("/")[0] in CHANGED or path.startswith(f"{WITNESS}/")
    }


def _ids_of_cells(records: Mapping[str, Json]) -> dict[str, str]:
    return {path: record["id"] for path, record in _of_cells(records).items()}
