"""Read a measurement of a local TileDB-SOMA experiment as the AnnData that `tiledbsoma.io.to_anndata` returns.

See https://github.com/single-cell-data/SOMA. The layers of X are streamed. Everything else is read at once, and written
to a Zarr store in memory in AnnData's encoding.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import tiledbsoma
import tiledbsoma.io
from numpy.typing import NDArray
from zarr.storage import MemoryStore

from hsparse.client.types.datatype import type_item
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.hdf5.importer.formats.domain_parts import BoxedArray, Dims, DomainParts, encoding
from hsparse.hdf5.importer.formats.zarr_parts import zarr_parts
from hsparse.hdf5.importer.formats.zarr_store import ZarrStore, files_below, fingerprint_of, library_errors
from hsparse.hdf5.importer.source import OpenedInput
from hsparse.hdf5.importer.sparse_matrix import Matrix, MatrixElements

COLUMN_BYTES = 16 << 20
"""The number of bytes of a table's column that are read at a time."""
BAND_BYTES = 16 << 20
"""The number of bytes of a dense layer's rows that are read at a time."""
X = "data"
"""The name of the layer that becomes `X`; other layers become `layers/NAME`."""


class SomaExperiment(OpenedInput):
    """An open TileDB-SOMA experiment."""

    def __init__(self, place: str) -> None:
        """Open an experiment; raises `Unsupported` for other SOMA objects, and if members are links or elsewhere."""
        self.name = place.rstrip("/")
        path = Path(place)
        self._sizes, state = files_below(path)
        self.size = sum(self._sizes.values())
        self.fingerprint = fingerprint_of(state)
        options = {"soma.init_buffer_bytes": COLUMN_BYTES}
        with library_errors(place, "tiledbsoma"):
            context = tiledbsoma.SOMATileDBContext(tiledb_config=options)
            self.experiment = tiledbsoma.open(str(path.resolve()), context=context)
        if not isinstance(self.experiment, tiledbsoma.Experiment):
            kind = type(self.experiment).__name__
            self.close()
            raise Unsupported(f"{place} is a {kind} of TileDB-SOMA; an Experiment is imported.")
        with library_errors(place, "tiledbsoma"):
            self._check_members(self.experiment, path.resolve().as_uri())

    def close(self) -> None:
        self.experiment.close()

    def bytes_below(self, path: str) -> int:
        """Return the number of bytes in the files below a path of the experiment."""
        return sum(size for key, size in self._sizes.items() if key.startswith(f"{path}/"))

    def _check_members(self, collection: Any, root: str) -> None:
        for name, (place, kind) in collection.members().items():
            if not place.startswith(f"{root}/") or ".." in place:
                raise Unsupported(
                    f"{self.name}: {name} is at {place}, outside of the experiment: copy it into the experiment."
                )
            if kind == "SOMAGroup":
                self._check_members(collection[name], root)


def open_soma(place: str, part: str) -> tuple[SomaExperiment, Callable[[], DomainParts]]:
    """Return a pair: an open experiment, and a function that reads the measurement `part` (default: the only one).

    Raises `BadRequest` if no measurement has this name, or `part` is empty and not exactly one exists.
    """
    opened = SomaExperiment(place)
    with library_errors(place, "tiledbsoma"):
        names = sorted(opened.experiment.ms)
    wanted = [name for name in names if not part or name == part]
    if len(wanted) != 1:
        opened.close()
        what = f"no measurement {part}" if part else f"{len(names)} measurements"
        raise BadRequest(f"{place} has {what}: name one of {', '.join(names)} by --part.")
    return opened, partial(_read, opened, wanted[0])


def _read(opened: SomaExperiment, name: str) -> DomainParts:
    experiment = opened.experiment
    with library_errors(f"/ms/{name}", "tiledbsoma"), warnings.catch_warnings(action="ignore"):
        data = tiledbsoma.io.to_anndata(experiment, name, X_layer_name=None)
        layers = dict(experiment.ms[name].X.items()) if "X" in experiment.ms[name] else {}
        values: dict[str, Any] = {}
        for frame in (data.obs, data.var):
            _replace_gaps(frame)
        with anndata.settings.override(zarr_write_format=3):
            data.write_zarr(MemoryStore(values), convert_strings_to_categoricals=False)
    buffers = {key: len(one) for key, one in values.items()}
    store = ZarrStore(
        opened.name, MemoryStore(values), buffers, "", lambda key: bytes(values[key].to_bytes())
    )
    parts = zarr_parts(store, "", as_is=False)
    parts.arrays.pop("X", None)
    for layer, array in layers.items():
        path = "X" if layer == X else f"layers/{layer}"
        nbytes = opened.bytes_below(f"ms/{name}/X/{layer}")
        with library_errors(f"/{path}", "tiledbsoma"):
            _add_layer(parts, path, array, data.shape, nbytes)
    return parts


def _replace_gaps(frame: Any) -> None:
    """Convert object columns that contain None to types that AnnData can write: nullable booleans, or categories."""
    for name, column in frame.items():
        if column.dtype == object and column.isna().any():
            is_truth = all(isinstance(one, bool) for one in column.dropna())
            frame[name] = column.astype("boolean" if is_truth else "category")


def _add_layer(parts: DomainParts, path: str, array: Any, shape: tuple[int, int], nbytes: int) -> None:
    dtype = np.dtype(array.schema.field("soma_data").type.to_pandas_dtype())
    if isinstance(array, tiledbsoma.SparseNDArray):
        batches = _batches(path, array, nbytes)
        parts.add_matrix(path, Matrix(shape, type_item(dtype), dtype.itemsize, int(array.nnz), batches))
        return
    if tuple(array.shape) != shape:
        raise Corrupt(f"/{path}: It has the extent {list(array.shape)}, not {list(shape)}.")
    rows = max(1, BAND_BYTES // max(1, shape[1] * dtype.itemsize))
    boxes = [
        (nbytes * (last - first) // shape[0], (first, 0), (last, shape[1]))
        for first in range(0, shape[0], rows)
        for last in [min(first + rows, shape[0])]
    ]
    kind = Hdf5Type.of(np.empty(0, dtype))
    boxed = BoxedArray(shape, kind, {}, boxes, partial(_dense, array), 3 * rows * shape[1] * dtype.itemsize)
    parts.arrays[path] = boxed, encoding("array", "0.2.0")


def _dense(array: Any, start: Dims, stop: Dims) -> NDArray[Any]:
    with library_errors("It is damaged", "tiledbsoma"):
        found: NDArray[Any] = array.read((slice(start[0], stop[0] - 1), slice(None))).to_numpy()
        return found


def _batches(path: str, array: Any, nbytes: int) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    count = max(1, int(array.nnz))
    with library_errors(f"/{path}", "tiledbsoma"):
        for table in array.read(result_order="row-major").tables():
            yield nbytes * len(table) // count, partial(_elements, table)


def _elements(table: Any) -> MatrixElements:
    coords = np.empty((len(table), 2), np.uint64)
    for dim in range(2):
        column = table.column(f"soma_dim_{dim}").to_numpy()
        if len(column) and int(column.min()) < 0:
            raise Corrupt("An element has a negative coordinate.")
        coords[:, dim] = column
    return coords, np.ascontiguousarray(table.column("soma_data").to_numpy())
