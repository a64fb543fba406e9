"""The HTTP form of the contract: where messages go, and the headers that travel with them."""

from __future__ import annotations

PATH = "/messages"
EPOCH_HEADER = "X-Hsparse-Epoch"
"""The membership epoch the sender planned with; a data node of another epoch answers `Moved`."""
TOKEN_HEADER = "X-Hsparse-Token"  # noqa: S105
"""The secret that the nodes of one installation share."""
FRAME_TYPE = "application/vnd.hsparse.frame"
