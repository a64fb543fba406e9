"""`hsparse.concat`: join the AnnDatas of many domains into one, whose matrices are virtual datasets, not copies."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue, WrongType
from hsparse.client.file import File
from hsparse.client.group import Group
from hsparse.client.http.address import parse_address
from hsparse.client.integrations.anndata.compressed_matrix import SCIPY_SPARSE
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_encoder import (
    ANNDATA,
    PANDAS,
    EncodedElements,
    matrix_attributes,
)
from hsparse.client.integrations.anndata.element_reader import MATRICES, ElementReader
from hsparse.client.integrations.anndata.element_writer import MAX_INLINE_BYTES
from hsparse.client.integrations.anndata.grown_matrix import GrownMatrix
from hsparse.client.integrations.anndata.matrix_rows import GivenRows, Rows, StoredRows, empty_rows
from hsparse.client.opening import create_file, open
from hsparse.client.progress import Progress
from hsparse.client.types.hdf5_type import attribute_body
from hsparse.client.virtual_layout import VirtualLayout

Join: TypeAlias = Literal["inner", "outer"]
Source: TypeAlias = Group | str | Path
Indices: TypeAlias = NDArray[np.intp]
HERE = "http://here"
"""A placeholder endpoint for addresses without a server; it stands for the server of the first source."""
READ, LINES = 1 << 23, 1 << 25
"""The maximum number of elements, defined or not, of a virtual matrix's chunk, and of a row of its chunks."""
MOST_PASSES = 64
"""The maximum number of mappings of a source; each mapping is read separately."""
DENSE = {"encoding-type": "array", "encoding-version": "0.2.0"}
RAW = {"encoding-type": "raw", "encoding-version": "0.1.0"}
MERGES = ("same", "unique", "first", "only")
COPY = "give copy=True (--copy) to write the values"


def concat(
    sources: Collection[Source] | Mapping[str, Source],
    to: str | Path,
    *,
    axis: Any = "obs",
    join: Join = "inner",
    merge: Any = None,
    uns_merge: Any = None,
    label: str | None = None,
    keys: Collection[str] | None = None,
    index_unique: str | None = None,
    fill_value: float | None = None,
    pairwise: bool = False,
    copy: bool = False,
    overwrite: bool = False,
    progress: Progress = None,
    **options: Any,
) -> File:
    """Concatenate the AnnDatas of files and groups into a new domain, as `anndata.concat` does, and return its file.

    X, the layers and raw become virtual datasets over the sources' matrices. The sources must be on the server of `to`
    and must not be deleted; their changes show in the result, and readers need the right to read the sources. Other
    parts are copied, so concatenate again after the rows of a source were reordered. With `copy`, the
    matrices are copied as well. Genes are matched by name. `join`, `merge`, `uns_merge`, `label`,
    `keys`, `index_unique`, `fill_value` and `pairwise` are as in `anndata.concat`; `axis` must be "obs".

    `sources` are addresses, open files or groups. `to` is an address, or a domain's path on the server of the first
    source. `options` are passed to `hsparse.open`. Raise `AlreadyExists` if `to` exists, unless `overwrite`.

    >>> with hsparse.concat({"a": cells, "b": cells}, "/home/admin/all.h5ad", label="run", index_unique="-") as every:
    ...     print(every["X"].shape, every.query("run == 'b'").obs.index[0])
    (8, 3) c0-b
    """
    _check_arguments(axis, join, {"merge": merge, "uns_merge": uns_merge}, options)
    if isinstance(sources, Mapping):
        if keys is not None:
            raise InvalidValue("A dict of sources has its own keys: leave out `keys`.")
        keys, sources = list(sources), list(sources.values())
    if isinstance(sources, str | Path | Group) or not len(sources):
        raise InvalidValue("hsparse.concat needs one or more sources: name them in a list or a dict.")
    if keys is not None and len(keys) != len(sources):
        raise InvalidValue(f"There are {len(keys)} keys for {len(sources)} files: give a key for each file.")
    own = {"label": label, "keys": keys, "index_unique": index_unique, "pairwise": pairwise}
    how = {"join": join, "merge": merge, "uns_merge": uns_merge, "fill_value": fill_value} | own
    with ExitStack() as stack:
        groups = [_opened(one, options, stack) for one in sources]
        target = _target(to, groups[0].connection, options)
        elements = Concatenation(
            [_SourcePart.of(one) for one in groups], how, None if copy else target
        ).elements()
        file = create_file(target, "w" if overwrite else "x")
        try:
            file._write_elements(elements, "/", (), progress)
        except BaseException:
            file._unmake()
            raise
        file.refresh()
    return file


def _check_arguments(axis: Any, join: str, merges: Mapping[str, Any], options: Collection[str]) -> None:
    """Raise `InvalidValue` or `WrongType` for an argument that is wrong, or that only `anndata.concat` has."""
    if axis not in ("obs", 0):
        raise InvalidValue(
            f"hsparse.concat concatenates along the axis 'obs' only, not {axis!r}: read the AnnDatas and use "
            "anndata.concat."
        )
    if join not in get_args(Join):
        raise InvalidValue(f"join is 'inner' or 'outer', not {join!r}.")
    for name, given in merges.items():
        if not (given is None or callable(given) or given in MERGES):
            raise InvalidValue(f"{name} is a function or one of {', '.join(MERGES)}, not {given!r}.")
    known = [*signature(concat).parameters, *signature(open).parameters]
    if unknown := [name for name in options if name not in known or name in ("address", "mode")]:
        raise WrongType(f"hsparse.concat has no argument {unknown[0]!r}.")


def _opened(source: Source, options: Mapping[str, Any], stack: ExitStack) -> Group:
    if isinstance(source, Group):
        return source
    if not isinstance(source, str | Path):
        raise WrongType(
            f"hsparse.concat takes files of hsparse.open and addresses, not a {type(source).__name__}."
        )
    found = stack.enter_context(open(source, "r", **options))
    if not isinstance(found, File):
        raise InvalidValue(f"{source} is a folder: name the domains in it.")
    return found


def _target(to: str | Path, first: Connection, options: Mapping[str, Any]) -> Connection:
    """Return a connection to the domain to create, which need not exist."""
    address = parse_address(to, None, HERE)
    if address.endpoint == HERE and "endpoint" not in options and "root" not in options:
        target = first.for_domain(address.path)
    else:
        above = open(Path(to).parent if address.root else str(to).rpartition("/")[0], "r", **options)
        target = above.connection.for_domain(address.path)
    target.is_read_only, target.batch = False, None
    return target


@dataclass(frozen=True, slots=True)
class _SourcePart:
    """The AnnData of a source; `place` is the path of its group."""

    tree: DomainTree
    place: str

    @classmethod
    def of(cls, group: Group) -> _SourcePart:
        """Request the records of a group; raise `InvalidValue` if it has no AnnData, or one from before 0.7."""
        tree = DomainTree(group.connection, group.records())
        place = group.name.strip("/")
        if place:
            tree.name += f"/{place}"
        tree.require_anndata()
        if tree.is_legacy:
            raise InvalidValue(f"{tree.name} was written by AnnData before 0.7: rewrite it by write_anndata.")
        return cls(tree, place)

    def data(self, how: Mapping[str, Any]) -> Any:
        """Return an AnnData without matrices that has the elements to join in memory."""
        parts = ["obs", "var", "obsm", *(["varm", "varp"] if how["merge"] is not None else [])]
        parts += ["uns"] if how["uns_merge"] is not None else []
        parts += ["obsp"] if how["pairwise"] else []
        reader = ElementReader(self.tree)
        parts = [part for part in parts if part in self.tree]
        for part in parts:
            reader.want(part)
        reader.fetch()
        return _made(**{part: reader.element(part) for part in parts})

    def genes(self, root: str) -> Any:
        """Read the names of var, or of raw's var if `root` is "raw/"."""
        reader = ElementReader(self.tree)
        reader.want_frame(f"{root}var", [])
        reader.fetch()
        return PANDAS.load().Index(reader.index(f"{root}var"))

    def count(self) -> int:
        return self.tree.frame_length("obs")


class _Probe(NamedTuple):
    """Properties of a concatenated matrix: form ("csr", or "" if dense), dtype and fill value of missing elements."""

    kind: str
    dtype: np.dtype[Any]
    fill: Any


class Concatenation:
    """Plans the concatenated AnnData of several domains; its matrices are virtual, or copied if `target` is None."""

    def __init__(
        self, parts: Sequence[_SourcePart], how: Mapping[str, Any], target: Connection | None
    ) -> None:
        self._parts, self._how, self._target = parts, how, target
        self._counts = [part.count() for part in parts]
        if target is not None:
            for part in parts:
                self._check_place(part, target)

    def elements(self) -> EncodedElements:
        """Return the elements of the new domain; raise `InvalidValue` for a source that does not fit."""
        datas = [part.data(self._how) for part in self._parts]
        self._check_genes("", [data.var_names for data in datas])
        found, joined = EncodedElements(), self._concat(datas, self._how)
        for frame in (joined.obs, joined.var, *joined.obsm.values(), *joined.varm.values()):
            _with_categories(frame)
        found.add_anndata(joined)
        self._add_matrices(found, "", [data.var_names for data in datas], joined.var_names)
        with_raw = ["raw" in part.tree for part in self._parts]
        if all(with_raw):
            genes = [part.genes("raw/") for part in self._parts]
            self._check_genes("raw/", genes)
            joined = self._concat([_shell(*one) for one in enumerate(genes)], {"join": self._how["join"]})
            found.groups["raw"] = dict(RAW)
            found.add("raw/var", joined.var)
            found.add("raw/varm", {})
            self._add_matrices(found, "raw/", genes, joined.var_names)
        elif any(with_raw):
            lacking = self._parts[with_raw.index(False)].tree.name
            warnings.warn(f"{lacking} has no raw, so the concatenation has none.", UserWarning, stacklevel=3)
        return found

    def _concat(self, datas: Sequence[Any], how: Mapping[str, Any]) -> Any:
        try:
            return ANNDATA.load().concat(datas, **how)
        except (NotImplementedError, TypeError, ValueError) as error:
            names = ", ".join(part.tree.name for part in self._parts)
            raise InvalidValue(f"{names} cannot be concatenated: {error}") from error

    # --- checks ---------------------------------------------------------------------------------------

    def _check_place(self, part: _SourcePart, target: Connection) -> None:
        source = part.tree.connection
        if source.url != target.url:
            raise InvalidValue(
                f"{part.tree.name} is on {source.url}, but {target.domain} is on {target.url}: virtual datasets need "
                f"sources on their own server; {COPY}."
            )
        if source.snapshot is not None:
            raise InvalidValue(
                f"{part.tree.name} is a snapshot, which virtual datasets cannot use: {COPY}, or name a clone of it."
            )
        if source.domain == target.domain:
            raise InvalidValue(f"{part.tree.name} is a source: give the concatenation another path.")

    def _check_genes(self, root: str, genes: Sequence[Any]) -> None:
        for part, names in zip(self._parts, genes, strict=True):
            if not names.is_unique:
                raise InvalidValue(
                    f"{root}var of {part.tree.name} has {names[names.duplicated()][0]!r} twice: genes are matched by "
                    "name, so make the names unique, for example by data.var_names_make_unique()."
                )

    # --- matrices -------------------------------------------------------------------------------------

    def _add_matrices(self, found: EncodedElements, root: str, genes: Sequence[Any], joined: Any) -> None:
        columns = [self._columns(names, joined) for names in genes]
        paths = [f"{root}X"]
        if not root:
            paths += dict.fromkeys(
                f"layers/{name}" for part in self._parts for name in part.tree.children("layers")
            )
        for path in paths:
            there = [path in part.tree for part in self._parts]
            if not any(there) or (
                self._how["join"] == "inner" and path.startswith("layers/") and not all(there)
            ):
                continue
            if path.endswith("X") and not all(there):
                lacking = self._parts[there.index(False)].tree.name
                raise InvalidValue(
                    f"{lacking} has no {path}, but other sources have one: {path} must be in all sources or in none."
                )
            self._add_matrix(found, path, self._probe(path, genes, columns), columns)

    def _columns(self, names: Any, joined: Any) -> Indices:
        """Return each joined gene's column in a source, (genes,) intp, with -1 for a gene that the source lacks."""
        if names.equals(joined):
            return np.arange(len(names))
        found: Indices = names.get_indexer(joined)
        return found

    def _probe(self, path: str, genes: Sequence[Any], columns: Sequence[Indices]) -> _Probe:
        """Find a matrix's properties by letting AnnData concatenate one row of each source."""
        fill, shells = self._how["fill_value"], []
        there = [StoredRows(part.tree, path) if path in part.tree else None for part in self._parts]
        has_gaps = None in there or any((at < 0).any() for at in columns)
        if fill and has_gaps and any(rows is not None and rows.kind for rows in there):
            raise InvalidValue(
                f"{path} is sparse, so its missing elements are 0, not {fill}: leave out fill_value."
            )
        for number, (rows, names) in enumerate(zip(there, genes, strict=True)):
            shells.append(_shell(number, names))
            if rows is not None:
                full = np.ones((1, len(names)), rows.dtype)
                shells[-1].layers["x"] = SCIPY_SPARSE.load().csr_matrix(full) if rows.kind else full
        matrix = self._concat(shells, {"join": self._how["join"], "fill_value": fill}).layers["x"]
        if SCIPY_SPARSE.load().issparse(matrix):
            return _Probe("csr", matrix.dtype, 0)
        gaps = [
            matrix[row] if rows is None else matrix[row, at < 0]
            for row, (rows, at) in enumerate(zip(there, columns, strict=True))
        ]
        values = np.concatenate(gaps)
        return _Probe("", matrix.dtype, values[0] if len(values) else matrix.dtype.type(0))

    def _add_matrix(
        self, found: EncodedElements, path: str, probe: _Probe, columns: Sequence[Indices]
    ) -> None:
        shape = (sum(self._counts), len(columns[0]))
        if 0 in shape:
            found.add(path, empty_rows(probe.kind, shape, probe.dtype))
        elif self._target is not None:
            found.bodies[path] = self._linked(path, probe, columns)
        else:
            self._add_copy(found, path, probe, columns)

    def _add_copy(self, found: EncodedElements, path: str, probe: _Probe, columns: Sequence[Indices]) -> None:
        parts: list[Rows] = []
        places: list[Indices] = []
        for part, count, at in zip(self._parts, self._counts, columns, strict=True):
            is_there = path in part.tree
            nothing = GivenRows(empty_rows(probe.kind, (count, 0), probe.dtype), probe.kind)
            parts.append(StoredRows(part.tree, path) if is_there else nothing)
            places.append(at if is_there else np.full_like(at, -1))
        grown = GrownMatrix(path, parts, places, probe.kind, probe.fill)
        grown.dtype = probe.dtype
        if not grown.kind and grown.dtype.itemsize * prod(grown.shape) <= MAX_INLINE_BYTES:
            found.add(path, grown[:])
        elif grown.kind:
            found.matrices[path] = grown, grown.kind
        else:
            found.arrays[path] = grown, dict(DENSE)

    def _linked(self, path: str, probe: _Probe, columns: Sequence[Indices]) -> Json:
        """Return the request body of a virtual dataset over the matrices that the sources have at a path."""
        shape = (sum(self._counts), len(columns[0]))
        layout = VirtualLayout(shape, probe.dtype, sparse=bool(probe.kind))
        if probe.kind:
            layout.chunks = _grid(max(self._counts), shape)
        first = 0
        for part, count, at in zip(self._parts, self._counts, columns, strict=True):
            if path in part.tree and count and self._has_elements(part, path, probe):
                layout.chunks = layout.chunks or _chunk_of(part.tree.record(path), shape)
                layout.mappings += self._mappings(part, path, first, at)
            first += count
        body = layout.body(None if probe.kind else probe.fill)
        sparse = matrix_attributes("csr") | {"shape": np.array(shape, np.int64)}
        attributes = sparse if probe.kind else DENSE
        return body | {"attributes": {name: attribute_body(value) for name, value in attributes.items()}}

    def _has_elements(self, part: _SourcePart, path: str, probe: _Probe) -> bool:
        """Return whether a source's matrix has elements to map; raise `InvalidValue` if it cannot be mapped."""
        tree, rows = part.tree, StoredRows(part.tree, path)
        if tree.encoding(path) in MATRICES and not tree.is_dataset(path):
            if tree.shape(f"{path}/data") == (0,):
                return False
            raise InvalidValue(f"{path} of {tree.name} is a group of three arrays, not a dataset: {COPY}.")
        if bool(rows.kind) != bool(probe.kind):
            raise InvalidValue(
                f"{path} of {tree.name} is {'sparse' if rows.kind else 'dense'}, but not in another source: a "
                f"virtual dataset needs sources that are all sparse or all dense; {COPY}."
            )
        if rows.dtype != probe.dtype and not {rows.dtype.kind, probe.dtype.kind} <= set("iuf"):
            raise InvalidValue(
                f"{path} of {tree.name} has values of {rows.dtype}, which a server does not convert to the "
                f"{probe.dtype} of the concatenation; {COPY}."
            )
        return True

    def _mappings(self, part: _SourcePart, path: str, first: int, at: Indices) -> list[Json]:
        """Return the mappings of a source to the rows from `first`; `at` has the source column of each joined gene."""
        passes = ascending_passes(at)
        if len(passes) > MOST_PASSES:
            raise InvalidValue(
                f"The genes of {part.tree.name} are in another order than those of the concatenation: a virtual "
                f"dataset would need {len(passes)} mappings, and be slow; {COPY}, or store its genes in that order."
            )
        count = part.count()
        name = (part.tree.connection.domain or "").replace("%", "%%")
        dataset = f"/{part.place}/{path}".replace("//", "/").replace("%", "%%")
        return [
            {
                "file": name,
                "dataset": dataset,
                "source": _block(0, count, some[1]),
                "virtual": _block(first, count, some[0]),
            }
            for some in passes
        ]


def ascending_passes(at: Indices) -> list[tuple[Indices, Indices]]:
    """Split the pairs (i, at[i]) with at[i] >= 0 into few parts, so that i and at[i] ascend within each part."""
    places = np.flatnonzero(at >= 0)
    columns = at[places]
    if not len(places):
        return []
    if (np.diff(columns) > 0).all():
        return [(places, columns)]
    tails: list[int] = []  # descending; negated for bisect
    parts = np.empty(len(columns), np.intp)
    for number, column in enumerate(columns.tolist()):
        part = bisect_right(tails, -column)
        # `part` is the first one whose last column is smaller.
        if part == len(tails):
            tails.append(-column)
        else:
            tails[part] = -column
        parts[number] = part
    return [(places[parts == part], columns[parts == part]) for part in range(len(tails))]


def _block(first: int, count: int, columns: Indices) -> Json:
    """Return a hyperslab of `count` rows from row `first` and of ascending columns, with a block per run of columns."""
    breaks = np.flatnonzero(np.diff(columns) != 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(columns, breaks)]
    if len(runs) == 1:
        start, last = runs[0]
        return {"class": "H5S_SEL_HYPERSLABS", "start": [first, start], "count": [count, last - start + 1]}
    corners = [[[first, start], [first + count - 1, last]] for start, last in runs]
    return {"class": "H5S_SEL_HYPERSLABS", "coordinates": corners}


def _shell(number: int, genes: Any) -> Any:
    """Return an AnnData with one cell and the names of its genes, without any data."""
    frame = PANDAS.load().DataFrame
    return _made(obs=frame(index=[str(number)]), var=frame(index=genes))


def _made(**parts: Any) -> Any:
    """Make an AnnData of its parts without warnings of repeated names, about which the concatenated AnnData warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ANNDATA.load().AnnData(**parts)


def _grid(count: int, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the chunk shape of a virtual sparse matrix; chunks are large, because reading a chunk costs a message.

    The number of rows is a power of two, so that the blocks of random rows (`choose_block_rows`) divide a chunk evenly.
    """
    rows = 1 << max(0, min(LINES // shape[1], count).bit_length() - 1)
    return min(rows, shape[0]), min(max(1, READ // rows), shape[1])


def _chunk_of(record: Json, shape: tuple[int, int]) -> tuple[int, ...] | None:
    layout = record.get("layout") or record.get("creationProperties", {}).get("layout") or {}
    return tuple(map(min, layout["dims"], shape)) if layout.get("dims") else None


def _with_categories(frame: Any) -> None:
    """Convert text columns with missing values to categoricals, in place, as AnnData does when it writes a file."""
    lacking = [
        name
        for name in getattr(frame, "columns", ())
        if frame[name].dtype == object and frame[name].isna().any()
    ]
    if lacking:
        made = _made(obs=frame[lacking].reset_index(drop=True).rename(str))
        made.strings_to_categoricals()
        for name in lacking:
            frame[name] = made.obs[name].astype("category").array
