"""What jobs' processes are given: where the node is, and an environment without its secret."""

from __future__ import annotations

import pytest

from hsparse.cli.service_node import loopback
from hsparse.config import job_environment, load_settings


@pytest.mark.parametrize(
    ("listens", "reached"),
    [
        ("http://127.0.0.1:5101", "http://127.0.0.1:5101"),
        ("http://0.0.0.0:5101", "http://127.0.0.1:5101"),
        ("http://[::]:5101", "http://[::1]:5101"),
        ("http://10.0.0.5:5101", "http://10.0.0.5:5101"),
    ],
)
def test_a_node_reaches_itself(listens: str, reached: str) -> None:
    assert loopback(listens) == reached


def test_the_environment_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSPARSE_NODE_TOKEN", "secret")
    monkeypatch.setenv("HSPARSE_USER", "someone")
    monkeypatch.setenv("HSPARSE_PASSWORD", "secret")
    monkeypatch.setenv("HSPARSE_TOKEN", "secret")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("HSPARSE_S3_REGION", "us-east-1")
    found = job_environment(load_settings(s3_endpoint="http://minio.example.org:9000"))
    assert "secret" not in found.values()
    assert "HSPARSE_USER" not in found
    assert found["AWS_PROFILE"] == "lab"
    assert found["HSPARSE_S3_ENDPOINT"] == "http://minio.example.org:9000"
    assert found["HSPARSE_S3_REGION"] == "us-east-1"
