"""What was deleted here, remembered for a while, so that it answers 410 and not 404."""

from __future__ import annotations

from collections import OrderedDict

from hsparse.errors import Gone, HsparseError, NotFound

LIMIT = 100_000


class Graves:
    """Names of deleted things, the oldest forgotten first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._names: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def bury(self, *name: str) -> None:
        """Remember that the thing of this name was deleted."""
        self._names[name] = None
        if len(self._names) > self._limit:
            self._names.popitem(last=False)

    def raise_again(self, *name: str) -> None:
        """Forget that it was deleted: it exists once more."""
        self._names.pop(name, None)

    def missing(self, sentence: str, *name: str) -> HsparseError:
        """Return the error for a thing that is not there: `Gone` when it was deleted, else `NotFound`."""
        return (
            Gone(f"{sentence} was deleted.")
            if name in self._names
            else NotFound(f"{sentence} does not exist.")
        )
