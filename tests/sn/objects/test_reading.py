"""Reading many records: all of them, by name, in batches of a bounded weight."""

from __future__ import annotations

import pytest

from hsparse.clock import ManualClock
from hsparse.cluster.membership import Membership
from hsparse.errors import NotFound
from hsparse.sn.objects.reading import FIRST_READS, MOST_READS, READ_BYTES, Pace, Reading, check_there
from hsparse.sn.owners import Owners
from hsparse.testing.dict_data_node import DictDataNode

IDS = [f"g-00000000-00000000-0000-000000-{n:06x}" for n in range(200)]


@pytest.fixture
def owners() -> Owners:
    node = DictDataNode(ManualClock())
    node.records = {id: {"id": id} for id in IDS}
    return Owners(Membership(1, ("dn-001",)), {"dn-001": node})


async def test_every_record_by_its_name(owners: Owners) -> None:
    reading = Reading(owners, {f"/{n}": id for n, id in enumerate(IDS)})
    batches = [batch async for batch in reading.batches()]
    assert [len(batch) for batch in batches] == [FIRST_READS] * 3 + [len(IDS) - 3 * FIRST_READS]
    assert {name: record["id"] for batch in batches for name, record in batch} == {
        f"/{n}": id for n, id in enumerate(IDS)
    }


async def test_what_is_not_there_fails(owners: Owners) -> None:
    await check_there(owners, IDS)
    with pytest.raises(NotFound):
        await check_there(owners, [*IDS, "g-00000000-00000000-0000-000000-ffffff"])


def test_a_pace_follows_what_batches_weigh() -> None:
    pace = Pace()
    pace.weigh(1)
    assert pace.reads == 2 * FIRST_READS, "it at most doubles"
    for _ in range(9):
        pace.weigh(1)
    assert pace.reads == MOST_READS
    pace.weigh(50 * READ_BYTES)
    assert pace.reads == MOST_READS // 50
    pace.weigh(10**12)
    assert pace.reads == 1
    pace.weigh(0)
    assert pace.reads == 2
