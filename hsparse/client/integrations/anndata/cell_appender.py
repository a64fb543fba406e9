"""Cells appended to the AnnData of a domain: all that has rows is stored anew, and linked by one change."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.errors import AlreadyExists, InvalidValue, WrongType
from hsparse.client.file import File
from hsparse.client.group import Group
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_encoder import ANNDATA, PANDAS, EncodedElements
from hsparse.client.integrations.anndata.element_reader import ElementReader
from hsparse.client.integrations.anndata.element_writer import SMALL, ElementWriter
from hsparse.client.integrations.anndata.grown_matrix import (
    GivenRows,
    GrownMatrix,
    Rows,
    StoredRows,
    empty_rows,
)
from hsparse.client.late_links import UncertainLink, delete_objects, link_objects
from hsparse.client.progress import Progress
from hsparse.client.types.hdf5_type import attribute_body
from hsparse.errors import Conflict, Gone, NotFound

if TYPE_CHECKING:
    from anndata import AnnData

Join: TypeAlias = Literal["inner", "outer"]
Table: TypeAlias = tuple[Any, Mapping[str, Any]]
"""A data frame, and the arrays that have its rows."""
DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}
CHANGED = ("X", "layers", "obs", "var", "obsm", "varm", "raw")
"""The parts that are read and may be replaced."""
WITNESS = "obsp"
"""The group that shows who appends: it is empty, and another one after each append."""


def append_anndata(
    file: File, data: AnnData, path: str = "/", *, join: Join = "inner", progress: Progress = None
) -> None:
    """Append the cells of an AnnData to the one at a path of a file; others see all of it at once.

    `join` is that of `anndata.concat`, and the same by default: with "inner" only the genes, columns of obs, layers
    and obsm that both have remain. With "outer" all do: genes of `data` that are new come last, and where a cell has
    nothing a sparse matrix has no element, anything else a missing value. The genes there keep their places, columns
    of var and varm; uns stays as it is. X and layers keep their form and chunks.

    X, layers, obs and obsm are stored anew, which takes as long as to write them all. `Conflict` if somebody else has
    changed them meanwhile. What does not fit is refused by name. After an error all is as it was.

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
        appender.write(appender.elements(), progress)
    except (NotFound, Gone):
        appender.check_unchanged()  # what was read may have been replaced, and deleted
        raise
    file.refresh()


class CellAppender:
    """Makes and stores the AnnData that a domain's and another one become."""

    def __init__(self, file: File, path: str, data: AnnData, join: Join) -> None:
        self._path, self._data, self._join = path.strip("/"), data, join
        self._witness: list[str] = []
        group = file[path] if self._path else file
        if not isinstance(group, Group):
            raise InvalidValue(
                f"{path} of {file.filename} is a dataset: name the group that has the AnnData."
            )
        self._group = group
        self._tree = tree = DomainTree(file.connection, group.records())
        if self._path:
            tree.name += f"/{self._path}"
        tree.require_anndata()
        if tree.is_legacy:
            raise InvalidValue(f"{tree.name} has an AnnData of before 0.7: write it anew by write_anndata.")

    def elements(self) -> EncodedElements:
        """Return what takes the place of the stored elements; `InvalidValue` names what does not fit."""
        tree, data, reader = self._tree, self._data, ElementReader(self._tree)
        self._check_parts()
        for part in ("obs", "var", "obsm", "varm", "raw/var", "raw/varm"):
            if part in tree:
                reader.want(part)
        reader.fetch()
        obs = reader.element("obs")
        self._check_cells(obs.index)
        found = EncodedElements()
        cells = self._joined(
            "obs", (obs, self._arrays(reader, "obsm")), (data.obs, dict(data.obsm)), self._join
        )
        _add_table(found, "obs", "obsm", cells)
        columns, genes = self._genes(reader, "", data)
        if genes is not None:
            _add_table(found, "var", "varm", genes)
        if data.X is not None:
            self._add_matrix(found, "X", data.X, columns)
        found.groups["layers"] = dict(DICT)
        for name in self._layers():
            self._add_matrix(found, f"layers/{name}", data.layers.get(name), columns)
        if "raw" in tree:
            found.groups["raw"] = {"encoding-type": "raw", "encoding-version": "0.1.0"}
            columns, genes = self._genes(reader, "raw/", data.raw)
            both = genes or (reader.element("raw/var"), self._arrays(reader, "raw/varm"))
            _add_table(found, "raw/var", "raw/varm", both)
            self._add_matrix(found, "raw/X", data.raw.X, columns)
        return found

    def write(self, elements: EncodedElements, progress: Progress) -> None:
        """Store the elements, and link them in the place of those that were read; `Conflict` if these have changed."""
        writer = ElementWriter(self._tree.connection)
        try:
            writer.write(
                elements, self._group, replaced=elements.names, progress=progress, confirm=self._confirm
            )
        except AlreadyExists as error:
            delete_objects(self._tree.connection, self._witness)
            raise self._conflict() from error

    def _confirm(self) -> dict[str, Json]:
        """Return a link that has to be there still when the new elements are linked.

        Whoever appends links an empty group of its own first, then looks whether all is as it was, and then replaces it
        by a change that fails if that link leads to another group. So of two that have read the same one fails: that
        whose group was replaced, or the other, which sees what was appended.
        """
        connection, group = self._tree.connection, self._group
        self.check_unchanged()
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
        self.check_unchanged()
        if WITNESS in self._tree:
            delete_objects(connection, [self._tree.record(WITNESS)["id"]])
        return mine

    def check_unchanged(self) -> None:
        """Raise `Conflict` if the AnnData is not as it was read."""
        if _of_cells(self._group.records()) != _of_cells(self._tree.records):
            raise self._conflict()

    def _conflict(self) -> Conflict:
        return Conflict(f"{self._tree.name} was changed while cells were appended to it: append them again.")

    # --- what fits ------------------------------------------------------------------------------------

    def _check_parts(self) -> None:
        tree, data = self._tree, self._data
        if children := tree.children(WITNESS):
            place = f"{self._path}/{WITNESS}/{children[0]}".lstrip("/")
            raise InvalidValue(
                f"{tree.name} has {WITNESS}/{children[0]}, which has nothing for pairs with new cells: "
                f"del f[{place!r}] first, and compute it anew."
            )
        if ("X" in tree) != (data.X is not None):
            which, other = ("the file", "the AnnData") if "X" in tree else ("the AnnData", "the file")
            raise InvalidValue(f"{which} has an X, and {other} has none: give both one, or none.")
        if "raw" in tree and data.raw is None:
            raise InvalidValue(
                f"{tree.name} has raw, and the AnnData has none: set its raw, or del f['raw']."
            )

    def _check_cells(self, stored: Any) -> None:
        new = self._data.obs_names
        twice = new[new.duplicated()].union(new[new.isin(stored)])
        if len(twice):
            raise InvalidValue(
                f"{len(twice)} names of cells would be there twice, as {twice[0]!r}: give others, "
                "as by data.obs_names = 'run2-' + data.obs_names."
            )

    def _layers(self) -> list[str]:
        stored, given = self._tree.children("layers"), list(self._data.layers)
        if self._join == "inner":
            return [name for name in stored if name in given]
        return list(dict.fromkeys([*stored, *given]))

    # --- frames and matrices --------------------------------------------------------------------------

    def _genes(
        self, reader: ElementReader, root: str, given: Any
    ) -> tuple[list[NDArray[np.intp]], Table | None]:
        """Return the column of each gene in the file's and in the given matrix, and var with varm if they change."""
        var, pandas = reader.element(f"{root}var"), PANDAS.load()
        old, new = var.index, pandas.Index(given.var_names)
        for names in (old, new):
            if not names.is_unique:
                raise InvalidValue(
                    f"{root}var has {names[names.duplicated()][0]!r} twice: genes are matched by name, "
                    "so make them unique, as by data.var_names_make_unique()."
                )
        is_new = ~new.isin(old)
        names = old[old.isin(new)] if self._join == "inner" else old.append(new[is_new])
        if not len(names) and len(old):
            raise InvalidValue(
                f"{root}var has no gene in common, {old[0]!r} is one of the file and {new[:1].tolist()} of the "
                "AnnData: use the same kind of names, or join='outer'."
            )
        columns = [index.get_indexer(names) for index in (old, new)]
        if len(names) == len(old) and not (self._join == "outer" and is_new.any()):
            return columns, None
        if varp := self._tree.children(f"{root}varp"):
            raise InvalidValue(f"{root}varp/{varp[0]} does not fit other genes: delete it first.")
        table: Table = (var, self._arrays(reader, f"{root}varm"))
        if self._join == "outer":
            others = given.varm if len(new) else {}
            more = (given.var[is_new], {name: others[name][is_new] for name in others})
            return columns, self._joined(f"{root}var", table, more, "outer")
        kept = columns[0]
        return columns, (var.iloc[kept], {name: _taken(value, kept) for name, value in table[1].items()})

    def _arrays(self, reader: ElementReader, path: str) -> dict[str, Any]:
        """Return the arrays of a part that was fetched."""
        found: dict[str, Any] = reader.element(path) if path in self._tree else {}
        return found

    def _joined(self, name: str, first: Table, second: Table, join: Join) -> Table:
        """Return a table with another one below it, as `anndata.concat` has obs and obsm."""
        module = ANNDATA.load()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names that are not unique, as those of genes may be
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

    def _add_matrix(
        self, found: EncodedElements, path: str, given: Any, columns: Sequence[NDArray[np.intp]]
    ) -> None:
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
        grown = GrownMatrix(path, parts, places)
        if 0 in grown.shape or (not grown.kind and grown.dtype.itemsize * np.prod(grown.shape) <= SMALL):
            found.add(path, grown[:])
        elif grown.kind:
            found.matrices[path] = grown, grown.kind
        else:
            found.arrays[path] = grown, {"encoding-type": "array", "encoding-version": "0.2.0"}


def _taken(value: Any, rows: NDArray[np.intp]) -> Any:
    return value.iloc[rows] if hasattr(value, "iloc") else value[rows]


def _add_table(found: EncodedElements, frame: str, arrays: str, table: Table) -> None:
    found.add(frame, table[0])
    found.add(arrays, dict(table[1]))


def _of_cells(records: Mapping[str, Json]) -> dict[str, Json]:
    """Return what is read of an AnnData, and what its witness has, which has to stay empty."""
    return {
        path: record
        for path, record in records.items()
        if path.partition("/")[0] in CHANGED or path.startswith(f"{WITNESS}/")
    }
