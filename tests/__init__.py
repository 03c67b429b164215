"""The tests; a package, so that they share tests.servers."""

import pytest

# Before anything imports it: else a failure in the public contracts shows no values.
pytest.register_assert_rewrite("aiocosid.testing")
