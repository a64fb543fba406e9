"""The tests: one folder a package, as in `hsparse`; `support` has what several of them need."""

import pytest

# The suites that ship with the package, and the machines, are to explain their failures as tests do.
for name in ("store_conformance", "node_conformance", "store_model"):
    pytest.register_assert_rewrite(f"hsparse.testing.{name}")
pytest.register_assert_rewrite("tests.support.stateful", "tests.support.dataset_subject")
