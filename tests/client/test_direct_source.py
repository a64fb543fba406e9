"""Which way to a dataset is chosen, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.client.integrations.direct.bucket_objects import Bucket, BucketObjects
from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.integrations.direct.direct_source import direct_source
from hsparse.client.integrations.direct.directory_objects import DirectoryObjects
from hsparse.client.integrations.direct.presigned_objects import PresignedObjects
from hsparse.client.integrations.direct.reader_choice import GivenReader
from hsparse.client.integrations.direct.server_objects import ServerObjects
from hsparse.client.sources.chosen_elements import ChosenElements
from hsparse.client.sources.elements import Direct
from hsparse.client.sources.http_elements import HttpElements
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import TEXT_TYPE
from hsparse.errors import BadRequest, Unsupported
from hsparse.format.selections.points import Orthogonal
from tests.client.access_ways import Access, served

WHOLE = Orthogonal.all((8, 8))


@pytest.fixture
def dataset(direct_access: Access) -> SparseDataset:
    dataset = direct_access.create((8, 8))
    dataset.write([[1, 2]], [3])
    return dataset


def opened(access: Access, dataset: SparseDataset, direct: Any) -> DirectElements | None:
    record = access.connection.json("GET", f"/datasets/{dataset.id}")
    return direct_source(access.connection, record, direct, served(access.connection, record))


def test_false_is_the_server(direct_access: Access, dataset: SparseDataset) -> None:
    assert opened(direct_access, dataset, False) is None


@pytest.mark.parametrize("direct", [None, True])
def test_what_the_server_offers(direct_access: Access, dataset: SparseDataset, direct: bool | None) -> None:
    """Here every server is on this machine: a directory is told and found, URLs are only asked for with True.

    Without a directory the server hands out the chunks.
    """
    source = opened(direct_access, dataset, direct)
    assert source is not None
    assert source.defined_elements(WHOLE).values.tolist() == [3]
    by_bucket = direct_access.way in ("s3", "presigned")
    assert (source.statistics.objects, source.statistics.fallbacks) == (1, 0)
    expected = PresignedObjects if direct else ServerObjects
    assert isinstance(source._reader, expected if by_bucket else DirectoryObjects)
    if direct is None:
        source.defined_elements(Orthogonal.box((8, 8), (1, 2), (2, 3)))
        assert source.statistics.small == 1  # one element of a chunk


@pytest.mark.parametrize("direct", [True, "server"])
def test_the_map_follows_the_writes_of_all_data_nodes(two_nodes_url: str, direct: Direct) -> None:
    with Connection(two_nodes_url, f"/two-nodes-{direct}.h5") as connection:
        connection.json("PUT", "/", {})
        dataset = SparseDataset.create(connection, "/x", (40, 8), "i4", (4, 8))
        source = opened(Access("directory", connection, direct), dataset, direct)
        assert source is not None
        for number in range(12):  # of ten chunks, which have one of two owners each
            dataset.write([[number * 3, 1]], [number])
            assert len(source.defined_elements(Orthogonal.all((40, 8)))) == number + 1
        source.defined_elements(Orthogonal.all((40, 8)))
        assert (source.statistics.maps, source.statistics.unchanged_maps) == (13, 1)
        assert source.statistics.fallbacks == 0


def test_a_directory_is_only_told_to_clients_on_the_machine(directory_access: Access) -> None:
    dataset = directory_access.create((8, 8))
    dataset.write([[1, 2]], [3])
    connection = directory_access.connection
    assert connection.json("GET", f"/datasets/{dataset.id}/map")["directory"] == str(directory_access.root)
    connection._headers = connection._headers | {"X-Forwarded-For": "203.0.113.7"}
    assert "directory" not in connection.json("GET", f"/datasets/{dataset.id}/map")
    source = opened(directory_access, dataset, None)
    assert source is not None
    assert source.defined_elements(WHOLE).values.tolist() == [3]
    assert isinstance(source._reader, ServerObjects)
    required = opened(directory_access, dataset, True)
    assert required is not None
    with pytest.raises(Unsupported, match="offers no direct reads"):
        required.defined_elements(WHOLE)


def test_another_host_hands_out_chunks(directory_access: Access) -> None:
    """Whatever directory it names; parts of chunks are sent as values."""
    dataset = directory_access.create((8, 8))
    dataset.write([[1, 2], [6, 5]], [3, 4])
    directory_access.connection.url = "http://data.example.org:5101"
    source = opened(directory_access, dataset, None)
    assert source is not None
    assert source.dense_values(WHOLE)[1, 2] == 3
    assert isinstance(source._reader, ServerObjects)
    assert (source.statistics.objects, source.statistics.small) == (2, 0)
    assert source.dense_values(Orthogonal.box((8, 8), (1, 2), (2, 6))).tolist() == [[3, 0, 0, 0]]
    assert (source.statistics.objects, source.statistics.small) == (2, 1)


def test_small_reads_of_another_host_are_not_worth_a_map(directory_access: Access) -> None:
    connection = directory_access.connection
    record = connection.json("GET", f"/datasets/{directory_access.create((8, 8)).id}")
    connection.direct = None
    source = ChosenElements(connection, record, np.dtype("i4"))
    small, large = Orthogonal.all((64, 65)), Orthogonal.all((1024, 1025))
    assert isinstance(source._for(small), DirectElements)  # from the directory
    connection.url = "http://data.example.org:5101"
    assert source._for(small) is source._server
    assert isinstance(source._for(large), DirectElements)
    connection.direct = "server"
    assert isinstance(source._for(small), DirectElements)


def test_a_tunnel_to_another_machine(directory_access: Access) -> None:
    """It looks like a server on this one, until its map names no directory."""
    dataset = directory_access.create((8, 8))
    dataset.write([[1, 2]], [3])
    connection = directory_access.connection
    connection._headers = connection._headers | {"X-Forwarded-For": "203.0.113.7"}
    source = opened(directory_access, dataset, None)
    assert source is not None
    for _ in range(3):
        assert source.defined_elements(WHOLE).values.tolist() == [3]
    assert isinstance(source._reader, ServerObjects)
    assert (source.statistics.objects, source.statistics.small) == (1, 2)


def test_a_directory_that_is_no_store(directory_access: Access, tmp_path: Path) -> None:
    dataset = directory_access.create((8, 8))
    with pytest.raises(BadRequest, match="is no directory of a store on this machine"):
        opened(directory_access, dataset, tmp_path)


def test_a_bucket_by_its_url(directory_access: Access) -> None:
    source = opened(directory_access, directory_access.create((8, 8)), "s3://some-bucket/")
    assert source is not None
    assert isinstance(source._choice, GivenReader)
    assert isinstance(source._choice.reader, BucketObjects)
    assert source._choice.reader.bucket == Bucket("some-bucket")


def test_what_is_not_in_chunk_objects_of_a_fixed_size_is_left_to_the_server(directory_access: Access) -> None:
    connection = directory_access.connection
    arange = {"initializer": ["arange", "--start=3", "--step=2"]}
    for body in (
        {"type": TEXT_TYPE, "shape": [8]},
        {"type": "H5T_STD_I32LE", "shape": "H5S_NULL"},
        {"type": "H5T_STD_I32LE", "shape": [8], "creationProperties": arange},
    ):
        record = connection.json("GET", f"/datasets/{connection.json('POST', '/datasets', body)['id']}")
        server = HttpElements(connection, record["id"], np.dtype(int))
        assert direct_source(connection, record, directory_access.direct, server) is None


def test_a_scalar(directory_access: Access) -> None:
    connection = directory_access.connection
    id = connection.json("POST", "/datasets", {"type": "H5T_STD_I32LE"})["id"]
    connection.json("PUT", f"/datasets/{id}/value", {"value": 5})
    record = connection.json("GET", f"/datasets/{id}")
    source = direct_source(
        connection, record, directory_access.direct, HttpElements(connection, "", np.dtype(int))
    )
    assert source is not None
    assert (source.dense_values(Orthogonal.all(())), source.statistics.objects) == (np.int32(5), 1)
