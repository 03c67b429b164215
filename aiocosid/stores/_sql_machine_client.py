"""Who asks a SQL store for machine ids: its description, and the life of its connections."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from math import ceil, inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .. import _fork
from .._instance_id import as_instance_id
from .._uncopied import Uncopied
from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    MAX_ID,
    InstanceId,
    MachineIdDistributor,
)
from ..abc._ids import check_integer
from ..errors import CosIdError, ForkedError
from ._machine_markers import Markers
from ._machine_tables import MAX_MACHINE_ID, MachineTables

if TYPE_CHECKING:
    from collections.abc import Generator

    from ._executor import Executor, Value
    from ._machine_tables import MachineDialect

__all__ = ("Claim", "SqlMachineClient")


class Claim(NamedTuple):
    """An id that was handed out to us, as we tell it to a store that may have forgotten.

    Attributes:
        machine_id: the id.
        bits: the width of the namespace.
        born_ms: when we asked for it, by our clock.
    """

    machine_id: int
    bits: int
    born_ms: int


class SqlMachineClient(Uncopied, MachineIdDistributor):
    """An instance on one `Executor`; `SqlMachineIdDistributor` inherits it."""

    __slots__ = (
        "_born",
        "_claim",
        "_is_unique",
        "_markers",
        "_owns_executor",
        "_tables",
        "_token",
        "store",
    )

    machine_dialect: MachineDialect

    def __init__(
        self,
        executor: Executor,
        *,
        namespace: str,
        instance_id: InstanceId | str | None,
        safe_guard: float,
        interval: float,
        owns_executor: bool = False,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            executor: runs the statements.
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            owns_executor: whether `aclose` closes it.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=safe_guard,
            interval=interval,
        )
        self.store = executor.label
        self._is_unique = instance_id is None
        self._owns_executor = owns_executor
        self._tables = MachineTables(executor, self.machine_dialect)
        self._markers = Markers(self._tables)
        self._born = _fork.generation
        self._token = ""  # of the last call that was handed an id
        self._claim: Claim | None = None  # what that call was

    @classmethod
    def _on(cls, executor: Executor, **described: Any) -> Self:  # noqa: ANN401 - as for __init__
        """Make one that shares an executor, past the subclass's own ``__init__``."""
        made = cls.__new__(cls)
        SqlMachineClient.__init__(made, executor, **described)
        return made

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> Self:
        """Describe who asks, on connections of its own, opened on first use, closed by `aclose`.

        Args:
            url: as for the store's own ``from_url``.
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        return cls._on(
            cls._own(url),
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
            owns_executor=True,
        )

    @classmethod
    @abstractmethod
    def _own(cls, url: str) -> Executor:
        """Return an executor that opens what it needs; nothing is opened yet."""

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child as an instance of its own.

        An instance id that was passed in stays what it is: the id moves to whoever asks last, who
        begins above the mark, and its former user learns of it at the next sign of life.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        await self._tables.executor.aopen()
        if self._born != _fork.generation:
            if self._is_unique:
                self.instance_id = as_instance_id(None)
            self._born, self._token, self._claim = _fork.generation, "", None

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        if self._owns_executor:
            await self._tables.executor.aclose()

    def _mine(self, machine_id: int) -> dict[str, Value]:
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        return {
            "namespace": self.namespace,
            "instance_id": self.instance_id.text,
            "machine_id": machine_id,
        }

    def _guard_ms(self) -> int:
        # An age that nothing has stands for ever.
        if self.safe_guard == inf:
            return MAX_ID
        return min(ceil(self.safe_guard * 1000), MAX_ID)

    @contextmanager
    def _in_one_process(self) -> Generator[None]:
        """Refuse to begin, or to end, in a process that was forked off: the id is the parent's."""
        self._ensure_own()
        try:
            yield
        except CosIdError:
            self._ensure_own()
            raise
        self._ensure_own()

    def _ensure_own(self) -> None:
        if self._born != _fork.generation:
            raise ForkedError(repr(self))
