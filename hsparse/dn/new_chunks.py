"""A guess whether the next chunk that is written is new: so the store need not be asked for it first."""

from __future__ import annotations

from collections import OrderedDict

STREAK = 8
"""So many new chunks of a dataset one after the other are a sign of more."""
MAX_DATASETS = 1024


class NewChunks:
    """How many chunks were new, one after the other, by dataset; those written to last are remembered.

    A dataset that is being filled has a streak of them. A wrong guess costs a put that the store refuses, once in
    `STREAK` chunks at most; a right one spares a read.
    """

    def __init__(self) -> None:
        self._streaks: OrderedDict[str, int] = OrderedDict()

    def expects(self, dataset: str) -> bool:
        """Say whether the next chunk is guessed to be new."""
        return self._streaks.get(dataset, 0) >= STREAK

    def note(self, dataset: str, is_new: bool) -> None:
        """Take note of a chunk that was written to: whether it was not there before."""
        self._streaks[dataset] = self._streaks.pop(dataset, 0) + 1 if is_new else 0
        if len(self._streaks) > MAX_DATASETS:
            self._streaks.popitem(last=False)
