"""The stores of a server of several buckets, where each bucket may have chunks in the other buckets."""

from __future__ import annotations

from collections.abc import Sequence

from hsparse.api import ObjectStore
from hsparse.stripes.store import StripedStore


def joined(stores: Sequence[ObjectStore]) -> list[ObjectStore]:
    """Return a striped store for each store; closing a striped store closes only the store that it wraps."""
    buckets = {store.name: store for store in stores}
    return [StripedStore(store, buckets) for store in stores]
