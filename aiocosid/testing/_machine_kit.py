"""Helpers of the contract of machine ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from .._life.clock import SYSTEM_CLOCK
from ..abc import InstanceId
from ..errors import MachineBitsMismatchError, MachineIdLostError, MachineIdOverflowError
from ._workers import fresh_namespace, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..abc import MachineGrant, MachineIdDistributor

__all__ = (
    "ODD_TEXTS",
    "SAFE_GUARD",
    "SECOND",
    "MachineKit",
    "MakeMachineIdDistributor",
    "assert_different",
    "refused_as_full",
    "refused_as_lost",
    "refused_for_its_width",
)

SECOND: Final = 1000  # milliseconds
SAFE_GUARD: Final = 300.0  # seconds

ODD_TEXTS: Final = (
    *("a-b", "a:b", "a/b", "{a}", "{a", "a b", " a", "a.b", "a|1", "ä€", "命名", "😀"),
    *("a'b", 'a"b', "a%s", "a\\b", "a\nb", "A-B", "-", "0", "__", "é", "e\u0301", "i" * 40),
)
"""Texts that all differ, including two ways to write an accented e, and upper and lower case."""


class MakeMachineIdDistributor(Protocol):
    """Creates distributors on one store; those with one namespace share its machine ids."""

    def __call__(
        self,
        *,
        namespace: str,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = SAFE_GUARD,
        interval: float = 60.0,
    ) -> MachineIdDistributor:
        """Return a new distributor; nothing needs to be written yet."""
        raise NotImplementedError


class MachineKit:
    """The instances of one namespace, by their texts.

    Attributes:
        namespace: the namespace; by default an unused one.
    """

    def __init__(
        self,
        make: MakeMachineIdDistributor,
        namespace: str | None = None,
        *,
        stable: bool = False,
        safe_guard: float = SAFE_GUARD,
        **further: Any,  # noqa: ANN401 - options that not every distributor has
    ) -> None:
        self._make, self._further = make, further
        self._distributors: dict[str, MachineIdDistributor] = {}
        self._stable = stable
        self._safe_guard = safe_guard
        self.namespace = namespace or fresh_namespace()

    def now_ms(self) -> int:
        """Return the wall clock's time, which a store may compare with its own clock."""
        return SYSTEM_CLOCK.now_ms()

    def ahead(self, *seconds: int) -> list[int]:
        """Return the times ``seconds`` ahead of now, in milliseconds since 1970."""
        now_ms = self.now_ms()
        return [now_ms + each * SECOND for each in seconds]

    def times(self, *, latest_ms: int = 2**53) -> dict[str, int]:
        """Return the arguments of `distribute` for now; by default any floor is allowed."""
        return {"now_ms": self.now_ms(), "latest_ms": latest_ms}

    def anew(self, text: str) -> MachineIdDistributor:
        """Return a new distributor for an instance, as after a restart."""
        who = InstanceId(text, stable=self._stable)
        about: dict[str, Any] = {
            "namespace": self.namespace,
            "instance_id": who,
            "safe_guard": self._safe_guard,
        }
        return self._make(**about, **self._further)

    def of(self, text: str) -> MachineIdDistributor:
        """Return the distributor of an instance, always the same."""
        if text not in self._distributors:
            self._distributors[text] = self.anew(text)
        return self._distributors[text]

    async def take(self, text: str, *, bits: int = 2, latest_ms: int = 2**53) -> MachineGrant:
        """Let an instance take a machine id."""
        return await self.of(text).distribute(bits, **self.times(latest_ms=latest_ms))

    async def take_all(self, texts: Iterable[str], *, bits: int = 2) -> dict[str, int]:
        """Let instances take ids one after the other, and return their machine ids."""
        return {text: (await self.take(text, bits=bits)).machine_id for text in texts}

    async def hold(self, texts: str, *, fence_ms: int = -1) -> None:
        """Let instances, one per letter, take the machine ids from 0 on, and renew them."""
        for number, text in enumerate(texts):
            await self.take(text)
            await self.renew(text, number, fence_ms=fence_ms)

    async def renew(self, text: str, machine_id: int, *, fence_ms: int = -1) -> None:
        """Renew an instance's id now."""
        await self.of(text).renew(machine_id, now_ms=self.now_ms(), fence_ms=fence_ms)

    async def reassert(self, text: str, machine_id: int, *, fence_ms: int = -1) -> None:
        """Renew an instance's id now, while its lease has not ended."""
        await self.of(text).reassert(machine_id, now_ms=self.now_ms(), fence_ms=fence_ms)


def assert_different(ids: Mapping[str, int]) -> None:
    """Check that no two instances have the same machine id."""
    holders: dict[int, list[str]] = {}
    for text, machine_id in ids.items():
        holders.setdefault(machine_id, []).append(text)
    shared = {machine_id: texts for machine_id, texts in holders.items() if len(texts) > 1}
    assert not shared, f"machine ids are held by more than one instance: {shared}"


async def refused_as_full(kit: MachineKit, text: str, *, bits: int = 2) -> MachineIdOverflowError:
    """Let an instance request an id from a full pool, and return the error."""
    told = f"all machine ids are held, but {text} got"
    return await refused(MachineIdOverflowError, told, kit.take, text, bits=bits)


async def refused_as_lost(
    kit: MachineKit,
    who: str | MachineIdDistributor,
    machine_id: int,
    *,
    fence_ms: int = -1,
    reassert: bool = False,
) -> MachineIdLostError:
    """Renew an id that the instance does not hold, and return the error."""
    distributor = kit.of(who) if isinstance(who, str) else who
    call = distributor.reassert if reassert else distributor.renew
    told = f"{distributor} could renew {machine_id}, which it does not hold:"
    times = {"now_ms": kit.now_ms(), "fence_ms": fence_ms}
    return await refused(MachineIdLostError, told, call, machine_id, **times)


async def refused_for_its_width(kit: MachineKit, text: str, *, bits: int, found: int) -> None:
    """Let an instance request another width than the namespace's, and return the error."""
    told = f"the width is {found} bits, but {text} asked for {bits} bits and got"
    error = await refused(MachineBitsMismatchError, told, kit.take, text, bits=bits)
    facts = (error.namespace, error.bits, error.found)
    assert facts == (kit.namespace, bits, found), f"the error names {facts}"
