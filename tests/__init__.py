"""The tests: one folder a room, as in the package."""

import pytest

# The suites that ship with the package assert as tests do, and are to explain their failures as tests do.
pytest.register_assert_rewrite("hsparse.testing.store_conformance", "hsparse.testing.node_conformance")
pytest.register_assert_rewrite("hsparse.testing.store_model")
pytest.register_assert_rewrite("tests.support.stateful", "tests.support.dataset_subject")
