"""Stored bytes are counted from the chunk objects alone."""

from pathlib import Path

import pytest

from benchmarks.peers.server import Server

DATASET = "d-00112233-44556677-8899-aabbcc-ddeeff"
KEY = "db/00112233-44556677/d/8899-aabbcc-ddeeff"


@pytest.mark.parametrize("bucket", ["", "bucket"])
def test_chunks_of_the_dataset_are_counted_and_nothing_else(tmp_path: Path, bucket: str) -> None:
    folder = tmp_path / bucket / KEY
    folder.mkdir(parents=True)
    (folder / "0_0").write_bytes(bytes(10))
    (folder / "12_3").write_bytes(bytes(5))
    (folder / ".dataset.json").write_bytes(bytes(100))
    (folder / "0_0.tmp").write_bytes(bytes(100))
    other = tmp_path / bucket / KEY.replace("ddeeff", "ddeef0")
    other.mkdir()
    (other / "0_0").write_bytes(bytes(100))
    server = Server("hsparse", "http://127.0.0.1:1", durable=True, children=[], store=tmp_path)
    assert server.stored(DATASET) == 15


def test_a_server_without_a_store_has_no_bytes() -> None:
    with pytest.raises(ValueError, match="stores nothing"):
        Server("bare", "http://127.0.0.1:1", durable=False, children=[]).stored(DATASET)
