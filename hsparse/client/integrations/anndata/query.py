"""Queries of an AnnData in a domain: rows and columns are chosen by conditions, and only needed data is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import InvalidValue, MissingKey, OutOfRange, WrongType
from hsparse.client.group import make_member
from hsparse.client.indexing.frame_labels import places_of
from hsparse.client.indexing.select import ArrayKey
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import ANNDATA, PANDAS, ElementReader
from hsparse.client.integrations.anndata.expression import INDEX, Expression
from hsparse.client.progress import Progress, show_rows
from hsparse.client.reductions import GROUP, Operation, Undefined, reduced_axes
from hsparse.client.reductions import Axis as Reduced
from hsparse.client.sources.value_batch import Axis
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.sparse_dataset import SparseDataset

if TYPE_CHECKING:
    from anndata import AnnData
    from pandas import DataFrame

Choice: TypeAlias = "str | Sequence[str] | Sequence[int] | NDArray[Any] | slice | None"
"""A choice of rows of obs or var: a condition, names, indices, a mask or a slice, or None for all."""
PARTS = {"layers": (0, 1), "obsm": (0,), "varm": (1,), "obsp": (0, 0), "varp": (1, 1)}
"""Maps each part to the axis of each dimension of its arrays: 0 for obs, 1 for var."""


@dataclass(frozen=True)
class Wanted:
    """The elements that a query reads: `columns` of obs, `var_columns` of var, and the named arrays of other parts.

    A field that is None stands for all columns or arrays. If `layer` is "raw", None excludes arrays with a dimension of
    var, because raw has other columns.
    """

    layer: str | None = None
    columns: tuple[str, ...] | None = None
    var_columns: tuple[str, ...] | None = None
    layers: tuple[str, ...] | None = None
    obsm: tuple[str, ...] | None = None
    varm: tuple[str, ...] | None = None
    obsp: tuple[str, ...] | None = None
    varp: tuple[str, ...] | None = None
    uns: bool = True
    raw: bool = True


class AnnDataQuery:
    """Rows and columns of an AnnData, chosen as by `data[rows, columns]`. Nothing is read before it is needed.

    One request reads the columns that the conditions name. `to_anndata`, `to_scipy`, `obs` and `var` read their result
    by one more request, or by several if it is large.

    >>> found = cells.query(obs="n_genes >= 1", var=["MS4A1", "CD3E"])
    >>> found
    <Query of /home/admin/cells.h5ad: obs='n_genes >= 1', var=['MS4A1', 'CD3E']>
    >>> found.n_obs, found.n_vars, found.to_scipy().toarray()
    (3, 2, array([[2., 1.],
           [0., 0.],
           [0., 4.]], dtype=float32))
    """

    def __init__(self, tree: DomainTree, obs: Choice, var: Choice, wanted: Wanted) -> None:
        """Raise `MissingKey` for an unknown name, and `InvalidValue` for a condition that cannot be parsed."""
        tree.require_anndata()
        self._tree = tree
        self._frames = ("obs", "raw/var" if wanted.layer == "raw" else "var")
        self._choices = tuple(
            Expression(choice) if isinstance(choice, str) else choice for choice in (obs, var)
        )
        self._wanted = wanted
        self._matrix = _matrix_path(tree, wanted.layer)
        self._elements = [(part, name) for part in PARTS for name in self._names(part)]
        for part, name in self._elements:
            tree.record(f"{part}/{name}")
        reader = ElementReader(tree)
        for frame, columns in zip(self._frames, (wanted.columns, wanted.var_columns), strict=True):
            known = reader.columns(frame)
            for name in (*(columns or ()), *self._named(frame)):
                if name not in known and name != INDEX:
                    raise MissingKey(f"{frame} of {tree.name} has no column {name!r}; there are {known}.")

    def __repr__(self) -> str:
        asked = [
            f"{name}={choice.text if isinstance(choice, Expression) else choice!r:.60}"
            for name, choice in zip(("obs", "var"), self._choices, strict=True)
            if choice is not None
        ]
        return f"<Query of {self._tree.name}{': ' if asked else ''}{', '.join(asked)}>"

    @property
    def n_obs(self) -> int:
        """The number of rows that are chosen.

        >>> cells.query("n_genes >= 1").n_obs
        3
        """
        return len(self.rows)

    @property
    def n_vars(self) -> int:
        """The number of columns that are chosen.

        >>> cells.query(var=["NKG7"]).n_vars
        1
        """
        return len(self.variables)

    @property
    def cuts_columns(self) -> bool:
        """Whether the query has a choice of columns.

        >>> cells.query().cuts_columns, cells.query(var=["NKG7"]).cuts_columns
        (False, True)
        """
        return self._choices[1] is not None

    @property
    def rows(self) -> NDArray[np.intp]:
        """The indices of the chosen rows, (n_obs,), in the order of the choice.

        >>> cells.query("cell_type == 'T'").rows
        array([0, 3])
        """
        return self._places[0]

    @property
    def variables(self) -> NDArray[np.intp]:
        """The indices of the chosen columns, (n_vars,), in the order of the choice.

        >>> cells.query(var=["MS4A1", "CD3E"]).variables
        array([2, 0])
        """
        return self._places[1]

    @cached_property
    def obs(self) -> DataFrame:
        """The rows of obs that are chosen, as a data frame of n_obs rows; the first access reads it.

        >>> cells.query("n_genes >= 1").obs
           cell_type  n_genes
        c0         T        2
        c2        NK        1
        c3         T        1
        """
        return self._frame(0)

    @cached_property
    def var(self) -> DataFrame:
        """The rows of var for the chosen columns, as a data frame of n_vars rows; the first access reads it.

        >>> cells.query(var=["MS4A1", "CD3E"]).var.index.tolist()
        ['MS4A1', 'CD3E']
        """
        return self._frame(1)

    def to_anndata(self, *, progress: Progress = None) -> AnnData:
        """Return the chosen rows and columns as an AnnData, as `data[rows, columns].copy()` does.

        `progress` is as in `SparseDataset.to_numpy`.

        >>> found = cells.query("n_genes >= 1", columns=["cell_type"]).to_anndata()
        >>> found.shape, found.obs["cell_type"].tolist()
        ((3, 3), ['T', 'NK', 'T'])
        """
        return self._anndata(self.rows, progress)

    def to_scipy(self, *, progress: Progress = None) -> Any:
        """Return the chosen part of X or the layer, (n_obs, n_vars): a csr or csc matrix, as stored, or a dense array.

        >>> cells.query("cell_type == 'T'", ["MS4A1", "CD3E"]).to_scipy().toarray()
        array([[2., 1.],
               [0., 4.]], dtype=float32)
        """
        if self._matrix is None:
            raise InvalidValue(f"{self._tree.name} has no X; name a layer.")
        reader = ElementReader(self._tree)
        reader.want(self._matrix, *map(_ascending, self._places, self._lengths))
        reader.fetch(progress)
        return _arranged(reader.element(self._matrix), self._places)

    def iter(self, size: int, *, progress: Progress = False) -> Iterator[AnnData]:
        """Yield AnnDatas of at most `size` rows each; the next AnnData is read in the background.

        `progress` is as in `SparseDataset.iter_rows`.

        >>> [part.shape for part in cells.query("n_genes >= 1").iter(2)]
        [(2, 3), (1, 3)]
        >>> seen = []
        >>> parts = list(cells.query().iter(3, progress=lambda done, total: seen.append((done, total))))
        >>> len(parts), seen[-1]
        (2, (4, 4))
        """
        if size < 1:
            raise InvalidValue(f"The size of a part must be at least 1 row, not {size}.")
        parts = (self.rows[start : start + size] for start in range(0, self.n_obs, size))
        found = prefetched(self._anndata, parts)
        yield from show_rows(found, progress, self._tree.name, self.n_obs, lambda part: int(part.n_obs))

    def reduce(
        self,
        *operations: Operation,
        axis: Reduced = None,
        by: str | Sequence[Any] | None = None,
        undefined: Undefined = "fill",
        ddof: int = 0,
    ) -> dict[str, NDArray[Any]]:
        """Return a dict that maps each operation to its result over rows (axis 0), columns (1) or all (None) of X.

        The server computes the results and sends only these, as in `SparseDataset.reduce`, in the order of the query.
        `by` names a column of obs (of var if `axis` is 1), or gives a label for each row or column of the whole X. The
        result has every group, including groups without a chosen row or column.

        >>> cells.query("n_genes >= 1", var=["MS4A1", "CD3E"]).reduce("sum", axis=0)
        {'sum': array([2., 5.])}
        >>> cells.query(var=["CD3E"]).reduce("mean", axis=0, by="cell_type")
        {'group': array(['B', 'NK', 'T'], dtype='<U2'), 'mean': array([[0. ],
               [0. ],
               [2.5]])}
        """
        dataset, places = query_matrix(self), self._places
        if any(len(np.unique(one)) < len(one) for one in places):
            raise InvalidValue("The query chooses a row or a column twice: choose each only once to reduce.")
        axes = reduced_axes(axis, 2)
        if isinstance(by, str):
            reader, frame = ElementReader(self._tree), self._frames[axes[0]]
            if by not in reader.columns(frame):
                raise MissingKey(
                    f"{frame} of {self._tree.name} has no column {by!r}; there are {reader.columns(frame)}."
                )
            by = f"/{self._tree.root}{frame}/{by}"
        found: dict[str, NDArray[Any]] = dataset.reduce(
            *operations,
            axis=axis,
            select=ArrayKey(places, orthogonal=True),
            by=by,
            undefined=undefined,
            ddof=ddof,
        )
        order = tuple(np.argsort(np.argsort(one)) for dim, one in enumerate(places) if dim not in axes)
        names = [name for name in found if name != GROUP]
        if order:
            # Columns are the last dimension of a result, behind the groups; rows are the first.
            found |= {
                name: found[name][..., order[0]] if axes[0] == 0 else found[name][order[0]] for name in names
            }
        return found

    # --- reading --------------------------------------------------------------------------------------

    def _anndata(self, rows: NDArray[np.intp], progress: Progress = False) -> AnnData:
        wanted, places = self._wanted, (rows, self.variables)
        axes = tuple(map(_ascending, places, self._lengths))
        reader = ElementReader(self._tree)
        columns = [self._columns(reader, axis) for axis in (0, 1)]
        for axis in (0, 1):
            reader.want_frame(self._frames[axis], columns[axis], axes[axis])
        if self._matrix is not None:
            reader.want(self._matrix, *axes)
        for part, name in self._elements:
            reader.want(f"{part}/{name}", *(axes[axis] for axis in PARTS[part]))
        is_whole = not self._tree.is_legacy  # in a legacy file uns has the categories of obs and var
        with_uns = wanted.uns and is_whole and "uns" in self._tree
        with_raw = wanted.raw and is_whole and "raw" in self._tree and wanted.layer != "raw"
        if with_uns:
            reader.want("uns")
        raw = _RawRows(reader, self._tree, axes[0]) if with_raw else None
        reader.fetch(progress)
        found: dict[str, Any] = {part: {} for part in PARTS}
        for part, name in self._elements:
            chosen = tuple(places[axis] for axis in PARTS[part])
            found[part][name] = _arranged(reader.element(f"{part}/{name}"), chosen)
        frames = [
            _arranged(reader.frame(self._frames[axis], columns[axis]), (places[axis],)) for axis in (0, 1)
        ]
        module = ANNDATA.load()
        # Copying a view, here of the frames alone, removes unused categories and their colors in uns.
        tables = {part: _frames_among(found[part]) for part in ("obsm", "varm")}
        uns = reader.element("uns") if with_uns else {}
        some = module.AnnData(obs=frames[0], var=frames[1], uns=uns, **tables)[:].copy()
        for part in tables:
            found[part] |= getattr(some, part)
        matrix = None if self._matrix is None else _arranged(reader.element(self._matrix), places)
        if raw is not None:
            found["raw"] = raw.element(rows)
        return module.AnnData(X=matrix, obs=some.obs, var=some.var, uns=some.uns, **found)

    def _names(self, part: str) -> tuple[str, ...]:
        """Return the names of the elements of a part that the query reads."""
        given: tuple[str, ...] | None = getattr(self._wanted, part)
        if given is not None:
            return given
        has_other_columns = self._wanted.layer == "raw" and 1 in PARTS[part]
        return () if has_other_columns or self._tree.is_legacy else tuple(self._tree.children(part))

    def _frame(self, axis: int) -> DataFrame:
        reader = ElementReader(self._tree)
        columns, places = self._columns(reader, axis), self._places[axis]
        reader.want_frame(self._frames[axis], columns, _ascending(places, self._lengths[axis]))
        reader.fetch()
        return _arranged(reader.frame(self._frames[axis], columns), (places,))

    def _columns(self, reader: ElementReader, axis: int) -> list[str]:
        given = (self._wanted.columns, self._wanted.var_columns)[axis]
        return reader.columns(self._frames[axis]) if given is None else list(given)

    # --- choosing -------------------------------------------------------------------------------------

    @cached_property
    def _lengths(self) -> tuple[int, int]:
        obs, var = (self._tree.frame_length(frame) for frame in self._frames)
        return obs, var

    @cached_property
    def _places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the chosen indices of obs and of var; one request reads the columns that the conditions name."""
        reader = ElementReader(self._tree)
        for frame, choice in zip(self._frames, self._choices, strict=True):
            named = self._named(frame)
            with_index = _has_names(choice) or (INDEX in named and INDEX not in reader.columns(frame))
            columns = [name for name in sorted(named) if name in reader.columns(frame)]
            if columns or with_index:
                reader.want_frame(frame, columns, index=with_index)
        reader.fetch()
        return self._chosen(reader, 0), self._chosen(reader, 1)

    def _chosen(self, reader: ElementReader, axis: int) -> NDArray[np.intp]:
        frame, choice, length = self._frames[axis], self._choices[axis], self._lengths[axis]
        if isinstance(choice, Expression):
            columns = {}
            for name in choice.names:
                if name in reader.columns(frame):
                    columns[name] = reader.series(frame, name)
                else:
                    columns[name] = PANDAS.load().Series(reader.index(frame))
            return np.flatnonzero(choice.evaluate(columns, length))
        if _has_names(choice):
            return places_of(
                [str(one) for one in np.asarray(choice).tolist()],
                reader.index(frame),
                f"{frame} of {self._tree.name}",
            )
        return _positions(choice, length, frame)

    def _named(self, frame: str) -> set[str]:
        choice = self._choices[self._frames.index(frame)]
        return choice.names if isinstance(choice, Expression) else set()


def query_matrix(query: AnnDataQuery) -> DenseDataset | SparseDataset:
    """Return the dataset of a query's X or layer; raise `InvalidValue` if there is no X, or it is not one dataset."""
    tree, path = query._tree, query._matrix
    if path is None or not tree.is_dataset(path):
        raise InvalidValue(f"{tree.name} has no X that is a dataset; name a layer.")
    found = make_member(tree.connection, tree.record(path), f"/{tree.root}{path}")
    assert isinstance(found, DenseDataset | SparseDataset)
    return found


def _frames_among(elements: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in elements.items() if hasattr(value, "iloc")}


class _RawRows:
    """The chosen rows of raw with all of its columns, as in a view of an AnnData."""

    def __init__(self, reader: ElementReader, tree: DomainTree, rows: Axis) -> None:
        self._reader = reader
        self._others = [part for part in ("var", "varm") if f"raw/{part}" in tree]
        reader.want("raw/X", rows)
        for part in self._others:
            reader.want(f"raw/{part}")

    def element(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        """Return a dict that maps var, varm and X to these elements of raw, after `reader.fetch`."""
        found = {part: self._reader.element(f"raw/{part}") for part in self._others}
        return found | {"X": _arranged(self._reader.element("raw/X"), (rows,))}


def _matrix_path(tree: DomainTree, layer: str | None) -> str | None:
    path = {None: "X", "X": "X", "raw": "raw/X"}.get(layer, f"layers/{layer}")
    if path not in tree and path == "X":
        return None
    tree.record(path)
    return path


def _has_names(choice: Any) -> bool:
    if choice is None or isinstance(choice, slice | Expression):
        return False
    array = np.asarray(choice)
    return bool(array.size) and (array.dtype.kind in "UT" or isinstance(array.reshape(-1)[0], str))


def _positions(choice: Any, length: int, frame: str) -> NDArray[np.intp]:
    """Return the indices that None (all), a slice, indices or a mask select, by numpy's rules."""
    if choice is None or isinstance(choice, slice):
        return np.arange(length)[choice or slice(None)]
    array = np.asarray(choice)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biu"):
        raise WrongType(f"Choose rows of {frame} by a condition, a list of names or of indices, or a mask.")
    if not array.size and array.dtype.kind != "b":
        return np.zeros(0, np.intp)
    try:
        return np.asarray(np.arange(length)[array])
    except IndexError as error:
        raise OutOfRange(f"{frame} has {length} rows: {error}.") from error


def _ascending(places: NDArray[np.intp], length: int) -> Axis:
    """Return indices in ascending order without repeats, or None if these are all indices below `length`."""
    found = np.unique(places)
    return None if len(found) == length else found


def _arranged(value: Any, places: tuple[NDArray[np.intp], ...]) -> Any:
    """Rearrange a value that was read at ascending indices to the order of `places`, which may have repeats."""
    for dim, chosen in enumerate(places):
        found, order = np.unique(chosen, return_inverse=True)
        if len(found) == len(chosen) and np.array_equal(order, np.arange(len(chosen))):
            continue
        at = order if dim == 0 else (slice(None), order)
        value = value.iloc[at] if hasattr(value, "iloc") else value[at]
    return value
