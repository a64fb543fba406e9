"""The contract between nodes: which kinds of messages and parts there are, in one version.

Nodes of one version speak with each other; a node that is sent another one refuses it, and names both.
"""

from __future__ import annotations

import dataclasses

from hsparse.errors import Outdated
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Reduction
from hsparse.format.selections.selection import Boxes, Orthogonal, Points, Span
from hsparse.model.stripes import Stripes
from hsparse.model.vlen_array import VlenArray
from hsparse.wire import (
    chunk_info_message,
    chunk_message,
    file_backed_message,
    membership_message,
    message,
    record_message,
)

VERSION = 1
"""The version of the messages. It is raised when a kind or a field of a release changes, or one is new."""

MODULES = (
    message,
    record_message,
    chunk_message,
    chunk_info_message,
    file_backed_message,
    membership_message,
)
PARTS = (
    Filter,
    ChunkSpec,
    Span,
    Orthogonal,
    Boxes,
    Points,
    VlenArray,
    Stripes,
    ChunkSelection,
    DefinedElements,
    FoundElements,
    Reduction,
    Partials,
)
"""What messages are made of, beside the dataclasses of their own modules."""


def check_version(version: int, own: int = VERSION) -> None:
    """Raise `Outdated` if a sender speaks another version than this node's `own`."""
    if version != own:
        raise Outdated(
            f"The sender speaks version {version} of the messages, this node {own}: install one hsparse on all nodes."
        )


def _all_kinds() -> dict[str, type]:
    own = (
        item
        for module in MODULES
        for item in vars(module).values()
        if isinstance(item, type) and dataclasses.is_dataclass(item)
    )
    return {kind.__name__: kind for kind in (*PARTS, *own)}


KINDS = _all_kinds()
"""The dataclasses that travel between nodes, by their names."""
