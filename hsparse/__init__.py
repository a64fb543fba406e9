"""Sparse HDF5 over HTTP: the names of the client. Each name is imported at its first use, to let servers start fast.

`__init__.pyi` declares the same names for type checkers.

The examples in docstrings use numpy as `np`, the names of the module that contains the example, and these names:

- `f`, the file `data/home/admin/run.h5` in a store's directory. It has `X`, a sparse dataset of shape (4, 3);
- `D`, a dense dataset of shape (4, 3) with the values 0 to 11;
- `S`, a sparse dataset of shape (5, 3) with the lower bounds (-2, 0);
- `cells`, a file with an AnnData: `X` of 4 cells and 3 genes, `cell_type` and `n_genes`; `adata` is that AnnData;
- `server`, the URL of a server.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "hsparse.client.integrations.anndata.cell_appender": ("append_anndata",),
    "hsparse.client.integrations.anndata.concatenation": ("concat",),
    "hsparse.client.integrations.batches.batches": ("Batches",),
    "hsparse.client.connection": ("Connection",),
    "hsparse.client.integrations.dask.dask_writer": ("from_dask",),
    "hsparse.client.dense_dataset": ("DenseDataset",),
    "hsparse.client.errors": ("AlreadyExists", "Unreachable"),
    "hsparse.client.file": ("File",),
    "hsparse.client.opening": ("Folder", "open"),
    "hsparse.client.sparse.from_scipy": ("from_scipy",),
    "hsparse.client.group": ("Group",),
    "hsparse.client.links": ("ExternalLink", "HardLink", "SoftLink"),
    "hsparse.client.integrations.polars.polars_source": ("scan",),
    "hsparse.client.sparse_dataset": ("SparseDataset",),
    "hsparse.client.virtual_layout": ("VirtualLayout", "VirtualSource"),
    "hsparse.errors": (
        "BadRequest",
        "Busy",
        "Conflict",
        "Corrupt",
        "DamagedFile",
        "Forbidden",
        "Gone",
        "HsparseError",
        "LeftOut",
        "NotFound",
        "OverQuota",
        "PreconditionFailed",
        "RateLimited",
        "StoreFailed",
        "StoreFull",
        "TooLarge",
        "Unauthenticated",
        "Unsupported",
    ),
}
_SUBMODULES = {"torch": "torch"}
"""Maps each module of the client that is imported at its first use to the extra that the module needs."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(["__version__", *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        optional = import_module("hsparse.optional_module")
        return optional.OptionalModule(f"hsparse.{name}", _SUBMODULES[name]).load()
    if name not in _MODULES:
        raise AttributeError(f"module 'hsparse' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
