"""The part of the machine ids' contract about many concurrent requests."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint

from ..errors import MachineBitsMismatchError
from ._machine_kit import MachineKit, assert_different, refused_as_full
from ._own_tests import OwnTests
from ._workers import at_once, storm

if TYPE_CHECKING:
    from ._machine_kit import MakeMachineIdDistributor as Make

__all__ = ("MachineCrowds",)


class MachineCrowds(OwnTests):
    """Concurrency and cancellation.  `MachineIdDistributorContract` inherits it."""

    async def test_concurrent_instances_share_nothing(self, make_machines: Make) -> None:
        """Thirty-two concurrent requests in an empty namespace get exactly 0 to 31."""
        kit = MachineKit(make_machines)
        ids: dict[str, int] = {}

        async def ask(text: str) -> None:
            ids[text] = (await kit.take(text, bits=5)).machine_id

        await at_once(partial(ask, f"10.0.0.1:{number}") for number in range(32))
        assert sorted(ids.values()) == list(range(32)), f"32 instances got {sorted(ids.values())}"
        await refused_as_full(kit, "one more", bits=5)

    async def test_one_of_two_widths_wins(self, make_machines: Make) -> None:
        """Of concurrent requests in an empty namespace, only those of one width are served."""
        kit = MachineKit(make_machines)
        served: dict[int, list[str]] = {}

        async def ask(text: str, bits: int) -> None:
            with suppress(MachineBitsMismatchError):
                await kit.take(text, bits=bits)
                served.setdefault(bits, []).append(text)

        await at_once(partial(ask, f"10.0.0.1:{n}", 3 + n % 2) for n in range(8))
        assert [len(texts) for texts in served.values()] == [4], (
            f"instances served, by width: {served}"
        )

    async def test_concurrent_calls_of_one_instance(self, make_machines: Make) -> None:
        """However many concurrent requests it sends, it has one id, and no other id is lost."""
        kit = MachineKit(make_machines)
        ids: list[int] = []

        async def ask() -> None:
            grant = await kit.anew("a").distribute(2, **kit.times())
            ids.append(grant.machine_id)

        await at_once([ask] * 10)
        assert set(ids) == {0}, f"one instance got {sorted(set(ids))}"
        assert_different(await kit.take_all("abcd"))

    async def test_two_hundred_lives_on_four_ids(self, make_machines: Make) -> None:
        """Taking and releasing loses no id, and never grants one twice at a time."""
        kit = MachineKit(make_machines)
        held: dict[int, str] = {}

        async def live(worker: str) -> None:
            for number in range(50):
                text = f"{worker}{number}"
                found = (await kit.take(text)).machine_id
                assert 0 <= found < 4, f"with 2 bits, {found} was granted"
                assert found not in held, f"{text} got {found}, which {held[found]} holds"
                held[found] = text
                await checkpoint()  # so that they overlap on a store that never suspends
                await kit.renew(text, found)
                del held[found]
                await kit.of(text).release(found, last_ms=kit.now_ms())
                await kit.of(text).aclose()

        await at_once(partial(live, worker) for worker in "abcd")
        assert_different(await kit.take_all("wxyz"))

    async def test_a_cancelled_call_loses_nothing(self, make_machines: Make) -> None:
        """After a call is cancelled, its instance finds the id again; no other instance has it."""
        kit = MachineKit(make_machines)
        texts = [f"i{number}" for number in range(32)]
        seen: dict[str, set[int]] = {text: set() for text in texts}

        async def call(text: str) -> None:
            seen[text].add((await kit.take(text, bits=5)).machine_id)

        for seed in range(3):
            await storm(call, texts, seed)
        for text in texts:
            await call(text)
        assert [text for text in texts if len(seen[text]) != 1] == [], (
            f"an instance got several machine ids: {seen}"
        )
        assert_different({text: min(ids) for text, ids in seen.items()})
        await refused_as_full(kit, "one more", bits=5)

    async def test_a_storm_of_cancelled_lives(self, make_machines: Make) -> None:
        """Whatever is cancelled, every id is available again once all have been released."""
        kit = MachineKit(make_machines)
        texts = [f"i{number}" for number in range(8)]

        async def live(text: str) -> None:
            found = (await kit.take(text, bits=3)).machine_id
            await kit.renew(text, found)
            await kit.of(text).release(found, last_ms=kit.now_ms())

        for seed in range(3):
            await storm(live, texts, seed)
        for text in texts:
            await live(text)
        assert_different(await kit.take_all("stuvwxyz", bits=3))
