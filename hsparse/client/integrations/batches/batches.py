"""`hsparse.Batches`: the rows of a sparse matrix as random batches, for training, with numpy and scipy alone.

`BatchPlan` chooses the rows of each buffer: random blocks of rows are read together, and their rows are shuffled.
`read_columns` reads the columns of an AnnData's `obs` that accompany the rows of its matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import InvalidValue, MissingKey, WrongType
from hsparse.client.group import Group
from hsparse.client.integrations.anndata.query import AnnDataQuery, query_matrix
from hsparse.client.integrations.batches.mapped_rows import MappedRows
from hsparse.client.sparse.prefetch import prefetched
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Gone, NotFound
from hsparse.optional_module import OptionalModule

FEWEST_BLOCKS = 128
"""The least number of blocks in a buffer. If the rows are sorted by 100 labels, batches then have 0.91 of the entropy
of batches of random rows."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The random blocks of the rows `0` to `count - 1` that one of `world` ranks reads, buffer by buffer.

    Equal plans give equal buffers, because they depend on the fields alone. Each row is in one buffer of one rank.
    """

    count: int
    block_rows: int
    buffer_rows: int
    shuffle: bool = True
    seed: int = 0
    epoch: int = 0
    rank: int = 0
    world: int = 1

    def buffers(self) -> list[NDArray[np.int64]]:
        """Return the ascending block numbers of each buffer of the rank; ranks differ by at most one block in all."""
        blocks = np.arange(-(-self.count // self.block_rows))
        if self.shuffle:
            self._random().shuffle(blocks)
        own = blocks[self.rank :: self.world]
        each = max(1, self.buffer_rows // self.block_rows)
        return [np.sort(own[start : start + each]) for start in range(0, len(own), each)]

    def rows(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of blocks; rows ascend if the blocks do."""
        rows = (blocks[:, np.newaxis] * self.block_rows + np.arange(self.block_rows)).reshape(-1)
        return rows[rows < self.count]

    def order(self, number: int, size: int) -> NDArray[np.int64]:
        """Return the order in which to use the rows of a buffer and the rows left over before it, `size` in all."""
        order = np.arange(size)
        if self.shuffle:
            self._random(1 + self.rank, number).shuffle(order)
        return order

    def row_count(self) -> int:
        """Return the number of rows of the rank."""
        return sum(len(self.rows(blocks)) for blocks in self.buffers())

    def _random(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.epoch, *stream])


def choose_block_rows(chunk_rows: int, buffer_rows: int) -> int:
    """Return the rows per block: a chunk's rows, halved until `FEWEST_BLOCKS` blocks fit into a buffer, or 1 if odd."""
    rows = max(1, chunk_rows)
    while rows > 1 and rows * FEWEST_BLOCKS > buffer_rows:
        rows = rows // 2 if rows % 2 == 0 else 1
    return rows


def parts(items: list[NDArray[np.int64]], part: int, of: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield pairs (index, item) for worker `part` of `of` workers: every `of`-th item, beginning with item `part`."""
    yield from list(enumerate(items))[part::of]


Columns = dict[str, NDArray[Any]]


def read_columns(
    connection: Connection, wanted: Sequence[str] | Mapping[str, Any], count: int
) -> tuple[Columns, Columns]:
    """Return two dicts by name: columns of `count` elements, and the categories of columns of codes (-1: none).

    `wanted` has names of columns of obs, or arrays by name, which are used as they are. Raise `MissingKey` for an
    unknown column, `InvalidValue` for a column of another length, and `WrongType` for a column that is neither an array
    nor categorical.
    """
    columns: Columns = {}
    categories: Columns = {}
    if isinstance(wanted, str):
        raise WrongType(f"Name columns in a list: [{wanted!r}].")
    if isinstance(wanted, Mapping):
        columns = {name: np.asarray(values) for name, values in wanted.items()}
    elif wanted:
        root = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
        for name in wanted:
            columns[name], known = _read(root, name)
            if known is not None:
                categories[name] = known
    for name, column in columns.items():
        if column.shape != (count,):
            raise InvalidValue(f"The column {name} has the shape {list(column.shape)}, not [{count}] (rows).")
    return columns, categories


def _read(root: Group, name: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    try:
        found = root[f"obs/{name}"]
    except MissingKey as error:
        raise MissingKey(f"There is no column {name} of obs in {root.connection.domain}.") from error
    if isinstance(found, DenseDataset):
        return found.to_numpy(), None
    if isinstance(found, Group) and {"codes", "categories"} <= set(found):
        codes, known = found["codes"], found["categories"]
        if isinstance(codes, DenseDataset) and isinstance(known, DenseDataset):
            return codes.to_numpy(), known.to_numpy()
    raise WrongType(f"The column {name} of obs is neither an array nor categorical: give its values by name.")


SCIPY = OptionalModule("scipy.sparse", "scipy")
Format: TypeAlias = Literal["csr", "numpy"]
BUFFER_BYTES = 256 << 20
COPIES = 6
"""The measured maximum number of copies of a buffer in memory: the rows in use, and the next rows as received bytes, as
elements with coordinates, and as a `csr_array`. Rows from several sources take one more copy."""


class Batch(NamedTuple):
    """Rows of a matrix: `x: (n, columns)`, a `csr_array` or dense; `obs`, columns by name, (n,) each; `rows: (n,)`.

    `rows` are the numbers of the rows in the matrix.

    >>> batch = next(iter(hsparse.Batches(X, {"label": [0, 1, 1, 0]}, size=2, shuffle=False)))
    >>> batch.x.toarray(), batch.obs["label"], batch.rows
    (array([[1., 0., 2.],
           [0., 0., 0.]], dtype=float32), array([0, 1]), array([0, 1]))
    """

    x: Any
    obs: dict[str, NDArray[Any]]
    rows: NDArray[np.int64]


class Batches:
    """An iterable of the batches of an epoch, in which each row of the matrix occurs once, over all ranks and parts.

    Random blocks of `block_rows` consecutive rows are read together into a buffer, whose rows are shuffled; the next
    buffer is read while one is used. A buffer has as many rows as about `memory` bytes allow, at least one batch. Equal
    arguments give equal batches; `set_epoch` chooses another order.

    >>> batches = hsparse.Batches(X, {"label": [0, 1, 1, 0]}, size=3, seed=1, format="numpy")
    >>> len(batches), sorted(row for batch in batches for row in batch.rows.tolist())
    (2, [0, 1, 2, 3])
    >>> for x, obs, rows in batches:
    ...     print(x.shape, sorted(obs))
    (3, 3) ['label']
    (1, 3) ['label']
    """

    def __init__(
        self,
        source: SparseDataset | AnnDataQuery,
        obs: Sequence[str] | Mapping[str, Any] = (),
        *,
        rows: Sequence[int] | NDArray[Any] | slice | None = None,
        size: int = 4096,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        format: Format = "csr",
        memory: int = BUFFER_BYTES,
        block_rows: int | None = None,
    ) -> None:
        """Take a matrix, or a query of an AnnData, and columns with a value for each row.

        `rows`, indices or a mask, chooses the rows, each once; a query has its own rows and columns. `obs` names
        columns of the domain's `obs` (AnnData), which are codes if categorical, or maps names to arrays with an element
        per row. Batches have `size` rows; `drop_last` omits a smaller last one. `rank` is the number of this process
        among `world` processes, which get different rows. A `block_rows` that does not divide the chunk's rows reads
        chunks repeatedly. One request, or the direct-read map, counts the elements.
        """
        if isinstance(source, AnnDataQuery) and rows is not None:
            raise InvalidValue("A query has rows already: leave out `rows`, or name them in the query.")
        dataset = query_matrix(source) if isinstance(source, AnnDataQuery) else source
        if not isinstance(dataset, SparseDataset) or dataset.ndim != 2 or dataset.fillvalue != 0:
            raise InvalidValue(f"Batches need a sparse matrix with the fill value 0, not {dataset!r}.")
        dataset.check_from_zero("Batches")
        if size < 1 or not 0 <= rank < world or (block_rows is not None and block_rows < 1):
            raise InvalidValue("size and block_rows must be at least 1, and rank must be 0 to world - 1.")
        if format not in ("csr", "numpy"):
            raise InvalidValue(f"There is no format {format!r}: give 'csr' or 'numpy'.")
        self.dataset, self.size, self.format, self.drop_last = dataset, size, format, drop_last
        self._linked = MappedRows.of(dataset)
        count, width = dataset.shape
        self.obs, self.categories = read_columns(dataset.connection, obs, count)
        self.rows = _chosen(source.rows if isinstance(source, AnnDataQuery) else rows, count)
        self.columns = source.variables if isinstance(source, AnnDataQuery) and source.cuts_columns else None
        defined = dataset.source.count_all(dataset.shape)
        defined = dataset.nnz if defined is None else defined
        row_bytes = defined / max(count, 1) * (dataset.dtype.itemsize + 4) + 8
        dense_bytes = width * dataset.dtype.itemsize * size if format == "numpy" else 0
        room = max(0, memory - dense_bytes) / (row_bytes * (COPIES + (self._linked is not None)))
        chosen = count if self.rows is None else len(self.rows)
        buffer_rows = max(size, int(min(room, chosen)) // size * size)
        block = block_rows or choose_block_rows((dataset.chunks or dataset.shape)[0], buffer_rows)
        self.plan = BatchPlan(chosen, block, buffer_rows, shuffle, seed, 0, rank, world)

    def __len__(self) -> int:
        """Return the number of batches that iteration yields."""
        rows = self.plan.row_count()
        return rows // self.size if self.drop_last else -(-rows // self.size)

    def __iter__(self) -> Iterator[Batch]:
        return self.part(0, 1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the rows, which follows from the number of the epoch and the seed.

        >>> batches = hsparse.Batches(X, size=4, seed=1)
        >>> batches.set_epoch(2)
        >>> sorted(next(iter(batches)).rows.tolist())
        [0, 1, 2, 3]
        """
        self.plan = replace(self.plan, epoch=epoch)

    def names(self, column: str, codes: Sequence[int] | NDArray[Any]) -> NDArray[Any]:
        """Convert codes of a categorical column to an object array of their categories; -1 becomes None.

        >>> batches = hsparse.Batches(cells.query("n_genes >= 1"), ["cell_type"], shuffle=False)
        >>> [batches.names("cell_type", batch.obs["cell_type"]).tolist() for batch in batches]
        [['T', 'NK', 'T']]
        """
        if column not in self.categories:
            raise MissingKey(
                f"{column} is not a categorical column of these batches; these are: {sorted(self.categories)}."
            )
        known = np.array([*self.categories[column].tolist(), None], object)
        found: NDArray[Any] = known[np.asarray(codes)]
        return found

    def part(self, part: int, of: int) -> Iterator[Batch]:
        """Yield the batches of worker `part` of `of` workers, from every `of`-th buffer; only the last may be small.

        >>> batches = hsparse.Batches(X, size=2, shuffle=False, memory=1)
        >>> [[batch.rows.tolist() for batch in batches.part(worker, 2)] for worker in (0, 1)]
        [[[0, 1]], [[2, 3]]]
        """
        plan = self.plan
        rest, rest_rows = list[Any](), list[NDArray[np.int64]]()

        def fetch(item: tuple[int, NDArray[np.int64]]) -> tuple[int, NDArray[np.int64], list[Any]]:
            number, blocks = item
            places = plan.rows(blocks)
            rows = places if self.rows is None else self.rows[places]
            return number, rows, self._read(rows)

        # Importing scipy takes as long as reading a buffer, so both are done at the same time.
        for number, rows, found in prefetched(fetch, parts(plan.buffers(), part, of), meanwhile=SCIPY.load):
            left = sum(map(len, rest_rows))
            # Joining copies the whole buffer, so the rests of several buffers wait until they fill a batch.
            if left and (not plan.shuffle or left + len(rows) % self.size >= self.size):
                found, rows = [*rest, *found], np.concatenate([*rest_rows, rows])
                rest, rest_rows = [], []
            matrix = _stacked(found)
            found.clear()  # `matrix` may be a copy of them
            order = plan.order(number, len(rows))
            whole = len(order) // self.size * self.size
            for start in range(0, whole, self.size):
                places = order[start : start + self.size]
                yield self._batch(matrix[places], rows[places])
            if whole < len(order):
                rest.append(matrix[order[whole:]])
                rest_rows.append(rows[order[whole:]])
        if rest and not self.drop_last:
            yield self._batch(_stacked(rest), np.concatenate(rest_rows))

    def _read(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return ascending rows as a list of `csr_array`s to stack: one, or one per source of a virtual matrix."""
        found = self._read_linked(rows) if len(rows) else None
        if found is not None:
            pass
        elif len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            found = [self.dataset[int(rows[0]) : int(rows[-1]) + 1]]
        else:
            found = [self.dataset[rows]]
        return found if self.columns is None else [one[:, self.columns] for one in found]

    def _read_linked(self, rows: NDArray[np.int64]) -> list[Any] | None:
        """Return rows from the sources of a virtual matrix, or None if the sources cannot be read separately."""
        linked = self._linked
        try:
            return None if linked is None else linked.read(rows)
        except (Gone, NotFound):  # the sources were replaced
            self._linked = None
            return None

    def _batch(self, matrix: Any, rows: NDArray[np.int64]) -> Batch:
        found = {name: values[rows] for name, values in self.obs.items()}
        return Batch(matrix.toarray() if self.format == "numpy" else matrix, found, rows)


def _chosen(rows: Any, count: int) -> NDArray[np.int64] | None:
    """Return the indices of the chosen rows of `count`, ascending and without repeats, or None if all are chosen."""
    if rows is None:
        return None
    places = np.arange(count)
    wanted = rows if isinstance(rows, slice) else np.asarray(rows)
    if not isinstance(wanted, slice) and not len(wanted):
        return places[:0]
    try:
        return np.unique(places[wanted])
    except IndexError as error:
        raise InvalidValue(f"`rows` are indices or a mask of {count} rows: {error}.") from None


def _stacked(matrices: Sequence[Any]) -> Any:
    return matrices[0] if len(matrices) == 1 else SCIPY.load().vstack(matrices, format="csr")
