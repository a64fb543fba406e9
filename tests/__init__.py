"""The tests: one folder a package, as in `hsparse`; `support` has what several of them need."""

import os

import pytest

# For this process and all that tests start.
# `sparse` compiles for seconds, in each process, what runs for some ms.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
# aiohttp reads all certificates of authorities twice when it is imported; no test speaks TLS to one of them.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)

# The conformance suites, and the machines, are to explain their failures as tests do.
for name in (
    "store_conformance",
    "record_conformance",
    "chunk_conformance",
    "element_query_conformance",
    "store_model",
):
    pytest.register_assert_rewrite(f"tests.testing.{name}_conformance")
pytest.register_assert_rewrite("tests.testing.store_model")
pytest.register_assert_rewrite("tests.support.stateful", "tests.support.dataset_subject")
