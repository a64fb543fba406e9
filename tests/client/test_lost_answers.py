"""Connections that are cut after a request was carried out: what appends or extends is made once all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.client.http.retry import Retry
from hsparse.client.sparse_dataset import SparseDataset


class CutConnection(Connection):
    """A connection that is cut before the answers to the next `cuts` changes."""

    cuts = 0

    def _exchange(self, method: str, *request: Any) -> Any:
        answered = super()._exchange(method, *request)
        if method == "PUT" and self.cuts:
            self.cuts -= 1
            raise self._unreachable(method, ConnectionResetError("cut"))
        return answered


@pytest.fixture
def cut(connection: Connection) -> Iterator[CutConnection]:
    with CutConnection(connection.url, connection.domain, retry=Retry(3, 5.0, lambda seconds: None)) as made:
        yield made


def test_an_append_whose_answers_were_lost_is_there_once(cut: CutConnection) -> None:
    dataset = SparseDataset.create(cut, "/rows", (0, 3), "i8", (4, 3), maxshape=(None, 3))
    cut.cuts = 2
    assert dataset.append(np.array([[1, 0, 3]])) == slice(0, 1)
    assert dataset.append(np.array([[4, 5, 6]])) == slice(1, 2)
    cut.cuts = 1
    assert dataset.extend(2) == slice(2, 4)
    assert cut.cuts == 0
    assert dataset.refresh() == (4, 3)
    assert dataset[:2].toarray().tolist() == [[1, 0, 3], [4, 5, 6]]


def test_another_change_is_not_repeated(cut: CutConnection) -> None:
    dataset = SparseDataset.create(cut, "/rows", (2, 3), "i8", (2, 3))
    cut.cuts = 1
    with pytest.raises(Unreachable):
        dataset[0] = [1, 2, 3]
    assert dataset[0].toarray().tolist() == [1, 2, 3]
