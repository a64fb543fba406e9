"""`hsparse.torch.Batches`: the rows of a sparse matrix as an `IterableDataset` of torch.

Needs the extra `torch`; `hsparse.Batches` yields the same batches without torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from hsparse.client.integrations.anndata.query import AnnDataQuery
from hsparse.client.integrations.batches.batches import Batch
from hsparse.client.integrations.batches.batches import Batches as NumpyBatches
from hsparse.client.sparse_dataset import SparseDataset

Format: TypeAlias = Literal["torch", "torch_csr", "csr", "numpy"]


class Batches(IterableDataset):  # type: ignore[misc] # torch may be absent where types are checked
    """The batches of `hsparse.Batches`, divided among the workers of a `DataLoader`.

    Over all workers and ranks, each row is in one batch of an epoch; the seed, the epoch and the number of workers
    determine the order. Pass `batch_size=None` to the `DataLoader`, because this class makes the batches. Each worker
    uses up to `memory` bytes. `rank` and `world` default to those of `torch.distributed` if initialized, or to 0 and 1.

    >>> batches = hsparse.torch.Batches(X, {"label": [0, 1, 1, 0]}, size=3, seed=1)
    >>> for x, obs, rows in torch.utils.data.DataLoader(batches, batch_size=None):
    ...     print(type(x).__name__, tuple(x.shape), obs["label"].dtype)
    Tensor (3, 3) torch.int64
    Tensor (1, 3) torch.int64
    """

    def __init__(
        self,
        source: SparseDataset | AnnDataQuery,
        obs: Sequence[str] | Mapping[str, Any] = (),
        *,
        format: Format = "torch",
        rank: int | None = None,
        world: int | None = None,
        **options: Any,
    ) -> None:
        """Take the arguments of `hsparse.Batches`; the formats "torch" (dense) and "torch_csr" make `x` a tensor.

        With these two formats, the columns of `obs` are tensors as well, except columns of text.
        """
        super().__init__()
        if rank is None or world is None:
            rank, world = _place(rank, world)
        inner: Any = {"torch": "numpy", "torch_csr": "csr"}.get(format, format)
        self._batches = NumpyBatches(source, obs, format=inner, rank=rank, world=world, **options)
        self._format = format
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # workers may outlive an epoch

    @property
    def categories(self) -> dict[str, Any]:
        """A dict that maps the name of each categorical column to its categories.

        >>> hsparse.torch.Batches(cells["X"], ["cell_type"]).categories
        {'cell_type': array(['B', 'NK', 'T'], dtype=object)}
        """
        return self._batches.categories

    def names(self, column: str, codes: Any) -> Any:
        """Return the category of each of the `codes` of a categorical column; see `hsparse.Batches.names`.

        >>> hsparse.torch.Batches(cells["X"], ["cell_type"]).names("cell_type", torch.tensor([2, 0]))
        array(['T', 'B'], dtype=object)
        """
        return self._batches.names(column, codes)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which determines the order of the rows; call this method before each epoch.

        >>> batches = hsparse.torch.Batches(X, size=4, seed=1)
        >>> batches.set_epoch(2)
        >>> sorted(next(iter(batches)).rows.tolist())
        [0, 1, 2, 3]
        """
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Batch]:
        self._batches.set_epoch(int(self._epoch))
        worker = get_worker_info()
        found = iter(self._batches) if worker is None else self._batches.part(worker.id, worker.num_workers)
        return map(self._converted, found)

    def _converted(self, batch: Batch) -> Batch:
        if self._format in ("csr", "numpy"):
            return batch
        obs = {
            name: values if values.dtype.kind in "OSUT" else torch.from_numpy(_native(values))
            for name, values in batch.obs.items()
        }
        x = _csr_tensor(batch.x) if self._format == "torch_csr" else torch.from_numpy(_native(batch.x))
        return Batch(x, obs, torch.from_numpy(batch.rows))


def _csr_tensor(matrix: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr),
            torch.from_numpy(matrix.indices),
            torch.from_numpy(_native(matrix.data)),
            matrix.shape,
            check_invariants=False,  # scipy's hold
        )


def _native(values: Any) -> Any:
    """Return the values as an array that torch accepts: in the machine's byte order, contiguous and writable."""
    return np.require(values, values.dtype.newbyteorder("="), ["C", "W"])


def _place(rank: int | None, world: int | None) -> tuple[int, int]:
    distributed = torch.distributed
    is_used = distributed.is_available() and distributed.is_initialized()
    return (
        (distributed.get_rank() if is_used else 0) if rank is None else rank,
        (distributed.get_world_size() if is_used else 1) if world is None else world,
    )
