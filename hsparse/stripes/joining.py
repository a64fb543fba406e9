"""The stores of a server of several buckets, each of which keeps chunks in the others."""

from __future__ import annotations

from collections.abc import Sequence

from hsparse.storage.object_store import ObjectStore
from hsparse.stripes.store import StripedStore


def joined(stores: Sequence[ObjectStore]) -> list[ObjectStore]:
    """Return a store over each; closing it closes that one alone."""
    buckets = {store.name: store for store in stores}
    return [StripedStore(store, buckets) for store in stores]
