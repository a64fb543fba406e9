"""Real files with a few bytes changed, read as an import reads them: a clear error or an answer, and nothing else.

Work is bounded by the size of the file, memory by a limit of the process's address space.
"""

from __future__ import annotations

import asyncio
import mmap
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.errors import HsparseError
from hsparse.format.dataspace_message import FormatRevision
from tests.cli.importer.mutated_file import MemorySource, Seed, contents
from tests.cli.importer.test_sparse_matrix import random_matrix, write_h5ad
from tests.clients.hdf5_files import FILES, OPTIONS
from tests.clients.netcdf_files import NETCDF
from tests.sn.file_domain import fetch, fill_domain
from tests.sn.value_client import value_client
from tests.support.endurance import repeats

GOLDEN = Path(__file__).parent.parent.parent / "data" / "golden"
HEADROOM = 64 * 1024 * 1024
"""Bytes of address space that reading may take: no file here has more than 1 MB."""
LARGEST = 1 << 20


def write_virtual(file: h5py.File) -> None:
    """Write datasets that are mapped within the file: by rows and columns, and without end."""
    unlimited = h5py.h5s.UNLIMITED
    file.create_dataset("s", data=np.arange(60).reshape(6, 10), maxshape=(None, 10))
    for number in range(2):
        file[f"p{number}"] = np.arange(20).reshape(2, 10) + number
    layout = h5py.VirtualLayout((8, 10), "<i8")
    found = h5py.VirtualSource(".", "s", (6, 10))
    layout[1:7], layout[7, ::2], layout[0, 1:4] = found, found[0, 5:], found[2:5, 1]
    file.create_virtual_dataset("by rows", layout, fillvalue=-1)
    whole, blocks = ((0, 0), (1, 1), (1, 1), (unlimited, 10)), ((0, 0), (unlimited, 1), (3, 1), (2, 10))
    for path, name, slabs in (("grows", b"s", (blocks, whole)), ("series", b"p%b", (blocks,))):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        spaces = [h5py.h5s.create_simple((2, 10), (unlimited, 10)) for _ in slabs]
        for space, (start, count, stride, block) in zip(spaces, slabs, strict=True):
            space.select_hyperslab(start, count, stride, block)
        plist.set_virtual(
            spaces[0], b".", name, spaces[-1] if len(spaces) > 1 else h5py.h5s.create_simple((2, 10))
        )
        space = h5py.h5s.create_simple((2, 10), (unlimited, 10))
        h5py.h5d.create(file.id, path.encode(), h5py.h5t.STD_I64LE, space, plist)


def made_by_h5py(folder: Path) -> Iterator[Seed]:
    for topic, fill in FILES.items():
        for bounds in ("earliest", "newest"):
            path = folder / "some.h5"
            libver = ("earliest", "latest") if bounds == "earliest" else "latest"
            with h5py.File(path, "w", libver=libver, **OPTIONS.get(topic, {})) as file:
                fill(file)
            yield Seed(f"{topic}, {bounds}", path.read_bytes())
    with h5py.File(folder / "virtual.h5", "w") as file:
        write_virtual(file)
    yield Seed("virtual datasets", (folder / "virtual.h5").read_bytes())
    for libver, name in (("earliest", "earliest"), ("v108", "v108"), ("latest", "latest")):
        path = folder / "indexes.h5"
        with h5py.File(path, "w", libver=libver) as file:
            for number, limits in enumerate([(40, 40), (None, 40), (None, None)]):
                for filters in ({}, {"compression": "gzip", "shuffle": True, "fletcher32": True}):
                    data = np.arange(1600).reshape(40, 40)
                    file.create_dataset(
                        f"d{number}{len(filters)}", data=data, chunks=(7, 9), maxshape=limits, **filters
                    )
        yield Seed(f"indexes, {name}", path.read_bytes())


def made_by_others(folder: Path) -> Iterator[Seed]:
    for topic, write in NETCDF.items():
        write(folder / "some.nc")
        yield Seed(topic, (folder / "some.nc").read_bytes())
    path = write_h5ad(folder / "some.h5ad", random_matrix(1, "<f4"), chunks=(17,), compression="gzip")
    yield Seed("h5ad", path.read_bytes())
    for path in sorted(GOLDEN.glob("*.h5")):
        yield Seed(path.stem, path.read_bytes())


async def made_here() -> list[Seed]:
    async with value_client() as client:
        await fill_domain(client)
        found = [Seed("stock", await fetch(client))]
        for revision in FormatRevision:
            whole = await fetch(client, layout="structured", revision=revision.value)
            found.append(Seed(revision.value, whole))
        return found


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Seed]:
    folder = tmp_path_factory.mktemp("seeds")
    found = [*made_by_h5py(folder), *made_by_others(folder), *asyncio.run(made_here())]
    return [seed for seed in found if len(seed.data) <= LARGEST]


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Have the process fail to allocate more than `HEADROOM` bytes beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HEADROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcome(data: bytes) -> str:
    """Read a file; return what an import would send, as a digest, or the kind of the error."""
    source = MemorySource(data)
    try:
        return contents(source)
    except HsparseError as error:
        return str(error.kind) if str(error) else "an error without a message"
    finally:
        assert source.bytes_read < 100 * len(data) + 10_000_000
        assert source.steps < 20_000


@pytest.mark.endurance
def test_mutations(seeds: list[Seed], request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("mutations") or repeats(500, short=80)
    before = [outcome(seed.data) for seed in seeds]
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    begun = time.perf_counter()
    with bounded_memory():
        for number in range(count):
            place = number % len(seeds)
            what, data = seeds[place].mutated(np.random.default_rng(number))
            try:
                found = outcome(data)
            except Exception as error:  # noqa: BLE001 - any is a finding
                wrong.append(f"mutation {number} of {seeds[place].name} ({what}): {error!r}"[:500])
                continue
            if len(found) == 64:
                found = "as it was" if found == before[place] else "other contents"
            if found == "other contents" and seeds[place].is_guarded(data):
                wrong.append(
                    f"mutation {number} of {seeds[place].name} ({what}): other contents, past a checksum"
                )
            outcomes[found] += 1
    seconds = time.perf_counter() - begun
    print(f"{count} mutations of {len(seeds)} files in {seconds:.0f} s, {len(wrong)} wrong: {dict(outcomes)}")
    assert not wrong, "\n".join(wrong[:50])
    assert outcomes["corrupt"] > count // 10
    assert len(outcomes) > 2


def test_the_bound_of_memory_is_one() -> None:
    """As a mapping: an array may find its memory in what the process has freed."""
    with bounded_memory(), pytest.raises(OSError, match="Cannot allocate memory"):
        mmap.mmap(-1, 2 * HEADROOM)
    mmap.mmap(-1, 2 * HEADROOM).close()
