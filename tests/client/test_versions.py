"""Snapshots in Python: what was there is there at a snapshot, whatever is done to the domain."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import hsparse
from hsparse.client.errors import InvalidValue, MissingFile, PermissionDenied
from hsparse.client.file import File
from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.integrations.direct.server_objects import ServerObjects
from hsparse.client.opening import Mode
from hsparse.client.sources.chosen_elements import ChosenElements
from tests.client.access_ways import open_file
from tests.support.endurance import repeats

State: TypeAlias = dict[str, list[float]]
DENSE, SPARSE = "dense", "sparse"


def opened(address: str, mode: Mode | None = None, **options: int) -> File:
    file = hsparse.open(address, mode, **options)  # type: ignore[arg-type]
    assert isinstance(file, File)
    return file


def read(file: File) -> State:
    """Return the elements of each dataset in a file."""
    found: State = {}
    for name in file:
        dataset = file[name]
        assert isinstance(dataset, hsparse.DenseDataset | hsparse.SparseDataset)
        found[name] = np.asarray(dataset[...] if name.startswith(DENSE) else dataset.to_numpy()).tolist()
    return found


class Past:
    """A domain with snapshots, and a dict that is copied at each."""

    def __init__(self, address: str, seed: int) -> None:
        self.address = address
        self.random = random.Random(seed)
        self.file = opened(address, "w")
        self.now: State = {}
        self.snapshots: dict[int, State] = {}
        self.is_restored = False
        """Whether names may lead to other objects than at the last snapshot, which had them without a name."""

    def step(self) -> None:
        deeds = (self.create, self.write, self.write, self.delete, self.take, self.restore, self.forget)
        self.random.choice(deeds)()

    def create(self) -> None:
        name = f"{self.random.choice((DENSE, SPARSE))}{len(self.now)}"
        if name in self.now:
            return
        size = self.random.randint(4, 12)
        if name.startswith(DENSE):
            self.file.create_dataset(name, (size,), "f4", chunks=(4,))
        else:
            self.file.create_sparse(name, (size,), "f4", (4,))
        self.now[name] = [0.0] * size

    def write(self) -> None:
        if self.now:
            name = self.random.choice(sorted(self.now))
            place = self.random.randrange(len(self.now[name]))
            self.now[name][place] = float(self.random.randint(1, 99))
            self.file[name][place] = self.now[name][place]

    def delete(self) -> None:
        if self.now and self.random.random() < 0.3:
            name = self.random.choice(sorted(self.now))
            del self.now[name], self.file[name]

    def take(self) -> None:
        number = self.file.snapshot(f"with {len(self.now)}").number
        assert number not in self.snapshots
        self.snapshots[number] = copy_of(self.now)
        self.is_restored = False

    def restore(self) -> None:
        if self.snapshots:
            number = self.random.choice(sorted(self.snapshots))
            self.file.restore(number)
            self.snapshots[self.file.snapshots()[-1].number] = self.now  # what was there before
            self.now = copy_of(self.snapshots[number])
            self.is_restored = True

    def forget(self) -> None:
        if self.snapshots and self.random.random() < 0.5:
            number = self.random.choice(sorted(self.snapshots))
            self.file.delete_snapshot(number)
            del self.snapshots[number]
            self.is_restored = True  # the last one may be of before a restore now

    def check(self) -> None:
        assert read(self.file) == self.now
        assert [one.number for one in self.file.snapshots()] == sorted(self.snapshots)
        for number, state in self.snapshots.items():
            with opened(self.address, snapshot=number) as file:
                assert read(file) == state, number
        for number in sorted(self.snapshots)[-1:]:
            names = set(self.now) | set(self.snapshots[number])
            changed = {name for name in names if self.now.get(name) != self.snapshots[number].get(name)}
            found = {one.path for one in self.file.diff(number)}
            assert found or not changed
            assert self.is_restored or {f"/{name}" for name in changed & set(self.now)} <= found


def copy_of(state: State) -> State:
    return {name: list(values) for name, values in state.items()}


@pytest.mark.endurance
def test_small_programs_are_those_of_a_dict_that_is_copied(url: str) -> None:
    for seed in range(repeats(60, short=2)):
        past = Past(f"{url}/program-{seed}.h5", seed)
        for _ in range(30):
            past.step()
            if past.random.random() < 0.2:
                past.check()
        past.check()
        past.file.close()


@pytest.fixture
def address(url: str, request: pytest.FixtureRequest) -> str:
    """The URL of a domain with a dense and a sparse dataset, and a snapshot before its last change."""
    found = f"{url}/{request.node.originalname}-{abs(hash(request.node.name))}.h5"
    with opened(found, "w") as file:
        file.create_dataset("dense", data=np.arange(100.0), chunks=(10,))
        file["sparse"] = sparse = file.create_sparse("sparse", (100, 100), "f4", (50, 50))
        sparse[np.arange(100), np.arange(100)] = np.ones(100)
        file.snapshot("before")
        file["dense"][:] = 0
        file.create_group("later")
    return found


def test_a_snapshot_is_only_read(address: str) -> None:
    with opened(address, snapshot=1) as file, opened(f"{address}@1") as same:
        assert (file.mode, same.mode) == ("r", "r")
        assert file.filename.endswith(".h5@1")
        assert list(file) == list(same) == ["dense", "sparse"]
        with pytest.raises(InvalidValue, match=r"h5@1 is a snapshot, which never changes: change the domain"):
            file.create_group("x")
        with pytest.raises(ValueError, match="never changes"):
            same["dense"][0] = 1
        with pytest.raises(ValueError, match="never changes"):
            file.snapshot()
    for mode in ("r+", "w", "a", "x"):
        with pytest.raises((InvalidValue, PermissionDenied, hsparse.AlreadyExists)):
            opened(f"{address}@1", mode)
        with pytest.raises(InvalidValue, match=f"give mode 'r', not '{mode.replace('+', '[+]')}'"):
            opened(address, mode, snapshot=1)
    assert list(opened(f"{address}@1", "r")) == ["dense", "sparse"]


def test_what_is_no_snapshot_is_said(address: str) -> None:
    with pytest.raises(MissingFile, match=r"h5@7 at .*; snapshots\(\) of /\S+\.h5 lists its snapshots"):
        opened(address, snapshot=7)
    for number in (0, -1, True):
        with pytest.raises(InvalidValue, match="is not the number of a snapshot"):
            opened(address, snapshot=number)
    with opened(address) as file, pytest.raises(KeyError, match="has no snapshot 7; there are 1"):
        file.restore(7)


def test_chunks_of_a_snapshot_are_read_from_the_server(address: str) -> None:
    """Their objects are among those of the domain, under other keys."""
    for direct in (None, True):
        file = open_file(address, snapshot=1, direct=direct)
        assert file["dense"][:].tolist() == list(range(100))
        x: Any = file["sparse"]
        assert x.to_scipy().sum() == 100
        assert isinstance(x.source, ChosenElements)
        assert isinstance(x.source.chosen, DirectElements)
        assert isinstance(vars(x.source.chosen)["_reader"], ServerObjects)


def test_references_to_objects_of_a_snapshot_are_refused(address: str) -> None:
    """Readers would take its objects for absent, and show fill values."""
    with opened(address, snapshot=1) as file:
        for format in ("json", "kerchunk"):
            with pytest.raises(hsparse.Unsupported, match="export it, or map it with addresses=file"):
                file.connection.json("GET", "/map", format=format)
        with pytest.raises(hsparse.Unsupported, match="no keys of their own"):
            file.connection.json("GET", f"/datasets/{file['dense'].id}/map", format="kerchunk")
        about = file.connection.json("GET", f"/datasets/{file['dense'].id}/map")
        assert "directory" not in about
        assert about["chunks"][0].keys().isdisjoint({"bucket", "key"})
        with pytest.raises(hsparse.Unsupported, match="no keys of their own"):
            file.connection.json("GET", f"/datasets/{file['dense'].id}/chunks", urls=60)
        assert file.connection.json("GET", "/map", addresses="file")["datasets"].keys() == {
            "/dense",
            "/sparse",
        }


def test_a_program_follows_what_changes(address: str) -> None:
    """It is told of what each snapshot has, of that which is taken while it waits, too."""
    with opened(address) as file, opened(address) as writer, ThreadPoolExecutor(1) as pool:
        first = [(one.id, one.chunk, one.change, one.until) for one in file.changes()]
        assert sorted(one[1] for one in first if one[1] is not None) == [(0,), (0, 0), (1, 1)]
        assert (len(first), {one[2:] for one in first}) == (3 + 3, {("created", 1)})
        assert (list(file.changes(since=1)), file.snapshot().number) == ([], 2)
        following = file.changes(since=1, wait=60)
        found = {(one.chunk, one.change) for one in islice(following, 3)}
        assert found == {((0,), "changed"), (None, "changed"), (None, "created")}

        def change() -> int:
            writer["sparse"][70, 70] = 5
            return writer.snapshot().number

        taken = pool.submit(change)
        one = next(following)
        assert (one.id, one.chunk, one.change, one.until) == (
            writer["sparse"].id,
            (1, 1),
            "changed",
            taken.result(),
        )
        file.delete_snapshot(1)
        with pytest.raises(KeyError, match="no snapshot 1 any more: begin again with since=0"):
            list(file.changes(since=1))


def test_a_store_in_a_directory_has_snapshots(tmp_path: Path) -> None:
    with open_file("/x.h5", "w", root=tmp_path / "data") as file:
        file["x"] = np.arange(10_000.0)
        assert file.snapshot("here").author == "admin"
        file["x"][:] = 0
        assert file.snapshots()[0].message == "here"
        with open_file(str(tmp_path / "data/x.h5@1")) as old:
            assert (old["x"][:] == np.arange(10_000.0)).all()
        top = hsparse.open("/", root=tmp_path / "data")
        assert list(top) == ["x.h5"]


def test_a_domain_that_is_called_like_a_snapshot_is_read_as_itself(url: str) -> None:
    opened(f"{url}/called.h5@1", "x")["own"] = [1]
    with opened(f"{url}/called.h5", "x") as file:
        file["x"] = [2]
        assert file.snapshot().number == 2  # as the path of the first one is taken
        opened(f"{url}/called.h5@4", "x").close()
        assert [file.snapshot().number for _ in range(2)] == [3, 5]
        with pytest.raises(KeyError, match="has no snapshot 4; there are 2, 3, 5"):
            file.restore(4)
        assert file.clone("/called-clone.h5", 5)["x"][:].tolist() == [2]
    with opened(f"{url}/called.h5@1") as plain:
        assert (plain.mode, list(plain)) == ("r+", ["own"])
    with pytest.raises(hsparse.AlreadyExists):
        opened(f"{url}/called.h5@2", "x")
