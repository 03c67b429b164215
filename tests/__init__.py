"""The tests; a package, so that they share tests.servers."""

import sys

# Before anything imports it: else a failure in the public contracts shows no values.  Scripts of
# tests do without pytest, whose import takes longer than most of them.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite("aiocosid.testing")
