"""The contract of generators of texts: that of every generator, with text ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

import anyio

from .._life.delegating import DelegatingLifecycle
from ..abc import IdGenerator
from ._generator_contract import IdGeneratorContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from ..abc import Statistics, TextIdGenerator
    from ._generator_contract import MakeGenerator

__all__ = ("MakeTextGenerator", "TextIdGeneratorContract")

WIDEST = 64  # maximum bytes of a text


class MakeTextGenerator(Protocol):
    """Creates generators that are not open yet; all generators of one test share one counter."""

    def __call__(self) -> TextIdGenerator:
        """Return a new generator."""
        raise NotImplementedError


class TextIdGeneratorContract(IdGeneratorContract):
    """Checks a generator of texts, with the tests of `IdGeneratorContract`.

    The fixture ``make_generator`` comes from `numbered`::

        @pytest.mark.asyncio
        class TestMyGenerator(TextIdGeneratorContract):
            @pytest.fixture
            def make_generator(self) -> MakeGenerator:
                store = MyStore()
                return self.numbered(lambda: MyTextGenerator(store, name="order"))
    """

    def number(self, text: str) -> int:
        """Return a number above 0 that rises with the ids; override it if your texts do not sort.

        By default it rises in the sort order of the texts, which may have at most 64 bytes.
        """
        data = text.encode()
        assert 0 < len(data) <= WIDEST, f"{text!r} has {len(data)} bytes"
        return int.from_bytes(data.ljust(WIDEST, b"\0"), "big")

    def numbered(self, make: MakeTextGenerator) -> MakeGenerator:
        """Return a factory for the contract's tests: its generators give the numbers of texts."""
        return lambda: _Numbered(make(), self.number)


class _Numbered(DelegatingLifecycle, IdGenerator):
    """A generator of texts that appears as a generator of numbers."""

    _inner: TextIdGenerator

    def __init__(self, generator: TextIdGenerator, number: Callable[[str], int]) -> None:
        self._inner = generator
        self._number = number

    @property
    def described_as(self) -> str:
        """The kind that its statistics name."""
        return type(self._inner).__name__

    async def next_id(self) -> int:
        return self._read(await self._inner.next_id())

    async def next_ids(self, n: int) -> list[int]:
        texts = await self._inner.next_ids(n)
        assert type(texts) is list, f"next_ids({n}) returned a {type(texts).__name__}"
        return [self._read(text) for text in texts]

    def next_id_nowait(self) -> int:
        return self._read(self._inner.next_id_nowait())

    def statistics(self) -> Statistics:
        return self._inner.statistics()

    async def run(self, *, task_status: TaskStatus[object] = anyio.TASK_STATUS_IGNORED) -> None:
        await self._inner.run(task_status=_Told(task_status, self))

    async def __aenter__(self) -> Self:
        opened = await self._inner.__aenter__()
        assert opened is self._inner, f"__aenter__ returned {opened!r}, not the generator"
        return self

    def __repr__(self) -> str:
        return repr(self._inner)

    def _read(self, text: str) -> int:
        assert type(text) is str, f"an id is a {type(text).__name__}"
        return self._number(text)


class _Told:
    """Checks that the generator of texts, and not a wrapped one, reports that it is ready."""

    def __init__(self, status: TaskStatus[object], numbered: _Numbered) -> None:
        self._status = status
        self._numbered = numbered

    def started(self, value: object = None) -> None:
        due = self._numbered.inner
        assert value is due, f"start(run) returned {value!r}, not the generator"
        self._status.started(self._numbered)
