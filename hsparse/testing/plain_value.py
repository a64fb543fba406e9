"""Values and types that h5py or h5pyd gave, in a form in which they can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(library: Any, value: Any) -> Any:
    """Return a value made of lists, numbers, bytes and text. Region and object references say only if there is one."""
    if isinstance(value, np.void) and value.dtype.names:
        return [plain(library, value[name]) for name in value.dtype.names]
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, np.ndarray):
        return [plain(library, part) for part in value] if value.ndim else plain(library, value[()])
    if isinstance(value, library.Reference | library.RegionReference):
        return "reference" if value else "null reference"
    if isinstance(value, library.Empty):
        return ["empty", plain_type(library, value.dtype)]
    if isinstance(value, list | tuple):
        return [plain(library, part) for part in value]
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if isinstance(value, float | complex) else value


def plain_type(library: Any, dtype: np.dtype[Any]) -> Any:
    """Return a type's description, the same for h5py's dtypes and h5pyd's."""
    if dtype.names is not None:
        return {name: plain_type(library, dtype[name]) for name in dtype.names}
    if dtype.subdtype is not None:
        return ["array", list(dtype.shape), plain_type(library, dtype.base)]
    base = library.check_dtype(vlen=dtype)
    if base is not None:
        return ["sequence", base.__name__ if isinstance(base, type) else plain_type(library, np.dtype(base))]
    reference = library.check_dtype(ref=dtype)
    if reference is not None:
        return ["reference", reference.__name__]
    members = None if dtype.kind == "b" else library.check_dtype(enum=dtype)
    return dtype.str if members is None else ["enum", dtype.str, dict(members)]
