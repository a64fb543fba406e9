"""A directory of a thousand files of all kinds, some of them damaged, below a mount that can only be read."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hsparse
from tests.files_matrix.exceptions import KNOWN, SERVED
from tests.files_matrix.exits import EXITS, Imported
from tests.files_matrix.makers import MAKERS
from tests.sn.in_place.test_served_files import ask
from tests.support.find_program import find_program

COUNT = 1000
KINDS = 30
DAMAGED_EVERY = 7


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory: `3-0.h5` is the file of the third maker, the others are copies, those in `damaged` changed."""
    place = tmp_path_factory.mktemp("thousand")
    made = {}
    for number, make in enumerate(MAKERS.values()):
        made[number] = place / f"{number}-0.h5"
        make(made[number])
    assert len(made) >= KINDS
    chosen = random.Random(0)
    for number in range(COUNT - len(made)):
        kind, copy = number % len(made), 1 + number // len(made)
        path = place / f"{kind}-{copy}{'-damaged' * (number % DAMAGED_EVERY == 0)}.h5"
        shutil.copyfile(made[kind], path)
        if path.name.endswith("-damaged.h5"):
            path.write_bytes(_damaged(path.read_bytes(), chosen))
    return place


def _damaged(data: bytes, chosen: random.Random) -> bytes:
    """Return a file that was cut short, or of which some bytes are others."""
    place = chosen.randrange(len(data))
    return chosen.choice(
        (
            data[:place],
            data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
            data[:place] + chosen.randbytes(64) + data[place + 64 :],
            chosen.randbytes(200) + data[200:],
        )
    )


@contextmanager
def _served(place: Path, root: Path) -> Iterator[str]:
    """Serve a directory by a process to which it is mounted for reading alone; the value is the server's URL."""
    mounted = root / "mounted"
    mounted.mkdir()
    serve = f"exec {find_program('hsparse')} serve --root {root / 'store'} --port 0 --files data={mounted}"
    script = f"mount --bind -o ro {place} {mounted} && ! touch {mounted}/x 2>/dev/null && {serve}"
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if " on http" not in line:
            process.wait()
            said = process.stderr.read().strip()
            if "unshare" in said or "mount" in said:
                pytest.skip(f"A read-only mount needs a right that is not there: {said}")
            raise RuntimeError(said)
        yield line.rpartition(" on ")[2].split()[0]
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.skipif(find_program("unshare") is None, reason="A mount of one process needs Linux's unshare.")
def test_a_thousand_files_on_a_mount_for_reading(thousand: Path, tmp_path: Path) -> None:
    before = _state_of(thousand)
    with _served(thousand, tmp_path) as url:
        began = time.perf_counter()
        listing = ask(url, "/domains?domain=/data/")["domains"]
        took = time.perf_counter() - began
        names = [one["name"].removeprefix("/data/") for one in listing]
        assert sorted(names) == sorted(before)
        print(f"\nlisted {len(names)} files in {took:.2f} s")

        opened: list[tuple[float, str]] = []
        refused: dict[str, str] = {}
        for name in names:
            began = time.perf_counter()
            try:
                with hsparse.open(f"{url}/data/{name}") as file:
                    list(file)
            except hsparse.HsparseError as error:
                refused[name] = str(error)
            opened.append((time.perf_counter() - began, name))
        opened.sort()
        print(f"opened each in {opened[len(opened) // 2][0]:.3f} s, the slowest in", opened[-5:])

        assert all("damaged" in name for name in refused), refused
        assert all(f"/data/{name}: " in said for name, said in refused.items())
        assert len(refused) > COUNT // DAMAGED_EVERY // 4
        listing = ask(url, "/domains?domain=/data/")["domains"]
        reasons = {one["name"].removeprefix("/data/"): one.get("reason") for one in listing}
        assert {name for name, reason in reasons.items() if reason} == set(refused)

        different = []
        for number, name in enumerate(MAKERS):
            given = Imported(name, thousand / f"{number}-0.h5", url, f"/data/{number}-0.h5", tmp_path)
            different += [f"{name}: {one}" for one in EXITS["client"](given)]
        expected = (*KNOWN, *SERVED)
        different = [one for one in different if not any(known.explains("client", one) for known in expected)]
        assert not different, "\n".join(different)
    assert _state_of(thousand) == before


def _state_of(place: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in place.iterdir()}
