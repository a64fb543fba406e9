"""Lower bounds of datasets: the first index in each dimension, which may be negative.

HDF5 indices begin at 0, so files store lower bounds as attributes, and imports read them back.

`hsparse_lower` has the lower bound of each dimension, `hsparse_minlower` the least value that the bound may reach.
"""

from __future__ import annotations

from base64 import b64decode
from math import prod
from typing import Any

import numpy as np

from hsparse.model.dataspace import UNLIMITED, dims_of, lower_of
from hsparse.model.layout import CHUNKED, STRUCTURED

LOWER, MINLOWER = "hsparse_lower", "hsparse_minlower"
INT64 = "H5T_STD_I64LE"
NO_LIMIT = -(2**63)
"""The value in the attribute `hsparse_minlower` for an unlimited bound."""
Json = dict[str, Any]


def bounds_attributes(shape: Json) -> Json:
    """Return a dict of name to attribute that stores a dataspace's lower bounds; empty without lower bounds."""
    lower = lower_of(shape)
    if not lower:
        return {}
    limits = [NO_LIMIT if limit == UNLIMITED else limit for limit in shape["minlower"]]
    space = {"class": "H5S_SIMPLE", "dims": [len(lower)]}
    values = {LOWER: list(lower), MINLOWER: limits}
    return {name: {"type": INT64, "shape": space, "value": value} for name, value in values.items()}


def with_bounds(body: Json) -> Json:
    """Move lower bounds from the attributes of a dataset's creation request to its `lower` and `minlower`."""
    attributes, shape = dict(body.get("attributes") or {}), body["shape"]
    dims = dims_of(shape) if isinstance(shape, dict) else tuple(shape)
    lower = _bounds_of(attributes.get(LOWER), dims)
    if lower is None:
        return body
    del attributes[LOWER]
    body = {**body, "attributes": attributes, "lower": lower}
    limits = _bounds_of(attributes.get(MINLOWER), dims)
    if limits is not None:
        del attributes[MINLOWER]
        if "maxdims" in body or "maxdims" in shape:  # without maxdims, bounds are fixed
            body["minlower"] = [UNLIMITED if limit == NO_LIMIT else limit for limit in limits]
    properties = body.get("creationProperties") or {}
    if (properties.get("layout") or {}).get("class") not in (CHUNKED, STRUCTURED):
        body["creationProperties"] = {name: one for name, one in properties.items() if name != "layout"}
    return body


def _bounds_of(attribute: Json | None, dims: tuple[int, ...] | None) -> list[int] | None:
    """Return the bounds in an attribute, one for each dimension, or None if its values are no such bounds."""
    if attribute is None or not dims or attribute.get("encoding") != "base64":
        return None
    item, own = attribute["type"], dims_of(attribute["shape"]) or ()
    if (item.get("base") if isinstance(item, dict) else item) != INT64 or prod(own) != len(dims):
        return None
    found: list[int] = np.frombuffer(b64decode(attribute["value"]), "<i8").tolist()
    return found
