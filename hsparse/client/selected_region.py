"""What a method of a dataset is asked for, as the REST API takes it: by `select` string.

Tests: tests/client/test_index_key.py, tests/client/test_sparse_dataset.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from hsparse.client.index_key import Key, ValueOrder, parse_key
from hsparse.errors import TooLarge, Unsupported
from hsparse.format.selections.points import Points
from hsparse.format.selections.select_syntax import format_select, parse_select
from hsparse.format.selections.selection import Boxes, Orthogonal, Selection

Select: TypeAlias = str | Selection | Key | None
"""What is selected: a key of numpy, `"[0:100,5,[1,3]]"` in the REST API's syntax, a `Selection`, or None for all."""
LONG_SELECT = 2048
"""Characters beyond which a selection is sent in the body: servers accept about 8000 in a URL."""
MAX_LISTED = 1 << 20
"""The most elements that are sent as points, because their selection has no `select` string."""


@dataclass(frozen=True, slots=True)
class SelectedRegion:
    """A selection in a dataset of the extent `extent`: its `select` string, None for all elements."""

    text: str | None
    extent: tuple[int, ...]
    known: ValueOrder | None = None
    is_cut_off: bool = False
    """Whether a slice of a key goes beyond the extent."""

    @property
    def is_long(self) -> bool:
        """Whether the string is too long for a URL."""
        return len(self.text or "") > LONG_SELECT

    @property
    def order(self) -> ValueOrder:
        """The order of its values."""
        return self.known or ValueOrder.row_major(self.selection.shape)

    @property
    def selection(self) -> Selection:
        """What the string selects; `BadRequest` if it is malformed or goes beyond the extent."""
        return parse_select(self.text, self.extent)

    def flatten(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values for the selection as they are sent: those for a key are broadcast, one is one for all."""
        if self.known is None or values.size == 1:
            return values.reshape(-1)
        return self.known.flatten(values)


def select_region(select: Select, extent: Sequence[int]) -> SelectedRegion:
    """Return the region of a selection in an extent.

    `BadRequest` for a key that does not fit it, `TooLarge` for a union of boxes, or a product of lists, of more than
    `MAX_LISTED` elements.
    """
    extent = tuple(extent)
    if select is None or isinstance(select, str):
        return SelectedRegion(select, extent)
    if isinstance(select, Orthogonal | Boxes | Points):
        return SelectedRegion(_text_of(select), extent, ValueOrder.row_major(select.shape))
    text, order, is_cut_off = parse_key(select, extent)
    return SelectedRegion(text, extent, order, is_cut_off)


def _text_of(selection: Selection) -> str:
    """Return the string of a selection; of one that has none, that of its points."""
    try:
        return format_select(selection)
    except Unsupported:
        if selection.size > MAX_LISTED:
            raise TooLarge(
                f"The selection has {selection.size} elements and is sent point by point, at most {MAX_LISTED}; "
                "select its boxes one by one."
            ) from None
    return format_select(Points(selection.extent, selection.coords()))
