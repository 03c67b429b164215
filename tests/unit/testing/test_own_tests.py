"""Each class of inherited tests has its own."""

from __future__ import annotations

import pytest

from aiocosid.testing import IdSegmentDistributorContract, MachineIdDistributorContract


@pytest.mark.parametrize("kit", [IdSegmentDistributorContract, MachineIdDistributorContract])
def test_what_is_marked_in_one_class_is_not_in_another(kit: type) -> None:
    """As anyio's plugin does with the tests of a class that it collects."""
    one, other = (type(name, (kit,), {}) for name in ("One", "Other"))
    names = [name for name in dir(kit) if name.startswith("test_")]
    assert names
    for name in names:
        pytest.mark.usefixtures("anyio_backend")(getattr(one, name))
        assert not getattr(getattr(other, name), "pytestmark", [])
        assert not getattr(getattr(kit, name), "pytestmark", [])


def test_an_own_one_is_kept() -> None:
    """With its arguments, and what it closes over."""
    said = []

    class Kit(IdSegmentDistributorContract):
        def test_more(self, *, what: str = "more") -> None:
            """Once more."""
            said.append(what)

    class Deeper(Kit):
        def test_int64_is_the_end(self) -> None:  # type: ignore[override]
            """Another one."""
            said.append("once")

    Deeper().test_more()
    Deeper().test_int64_is_the_end()
    assert said == ["more", "once"]
    assert Deeper.test_more.__doc__ == "Once more."


def test_a_copy_hides_no_override() -> None:
    """Of a class that comes later in the order of resolution, as without copies."""
    said = []

    class One(IdSegmentDistributorContract):
        """Has a copy."""

    class Other(IdSegmentDistributorContract):
        def test_int64_is_the_end(self) -> None:  # type: ignore[override]
            """Another one."""
            said.append("other")

    class Both(One, Other):
        """Has the other's."""

    Both().test_int64_is_the_end()
    assert said == ["other"]
