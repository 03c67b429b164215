"""Worker ids in another system's registry: the registry, its distributor, and its store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter as Counted
from dataclasses import dataclass, replace
from math import inf
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NoReturn,
    Self,
    TypeVar,
    cast,
)

from .._life import fork
from .._life.fork import NotCopyable
from ..abc import InstanceId, MachineGrant, MachineIdDistributor, Store
from ..abc.checks import MAX_MS, check_integer, check_machine_bits
from ..abc.dates import iso_text
from ..abc.leases import RestartOptions
from ..abc.restart import VOID
from ..errors import (
    CosIdError,
    InvalidArgumentError,
    MachineIdLostError,
    StoreUnavailableError,
    UnsupportedByStoreError,
)
from ..machine.restart import unconfirmed_since_ms
from ..machine.restart_file import restart_file
from ._stamps import LIVES, claim_stamp, name_of, named_stamps, stamp
from ._table import Examined
from ._url import split_options

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from ..abc import Counter, IdSegmentDistributor
    from ..abc.restart import RestartPlace, RestartRecord
    from ._url import Options

__all__ = (
    "Entry",
    "Registry",
    "WorkerIdDistributor",
    "WorkerIdStore",
    "examine_registry",
    "refuse_region",
)

At = TypeVar("At")
T = TypeVar("T")

ATTEMPTS: Final = 20  # a row usually has one writer, and only briefly two


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A worker id as it was read.

    Attributes:
        worker_id: the number.
        stamp: the time that is stored with it; -1 if there is none.
        owner: the holder in the registry's notation; empty if there is none.
        about: the registry's own data, which it needs to write the entry.
    """

    worker_id: int
    stamp: int = -1
    owner: str = ""
    about: Any = None


class Registry(ABC, Generic[At]):
    """The way in which a system keeps its worker ids, for `WorkerIdDistributor`.

    ``At`` is the object that an attempt uses: a tree of nodes, or a database.

    Attributes:
        door: the connection to the server, which is opened and closed with the store: a database,
            or a link to ZooKeeper, which waits between two attempts.
        store: the server, without credentials.
        namespace: the registry in messages.
        instance_id: the instance that takes the worker id.
        times: ``interval``, the seconds between two renewals, and ``safe_guard``, the seconds
            without a renewal after which another instance may take the worker id; ``safe_guard``
            may be omitted.
        is_leased: whether a worker id is lost if it is not renewed.
        by_address: whether the id belongs to an address, whose processes have different stamps; see
            `_stamps`.  Otherwise the registry knows the owner, and a forked child may take its own
            id.
    """

    is_leased: ClassVar[bool] = False
    by_address: ClassVar[bool] = True

    def __init__(
        self,
        door: Any,  # noqa: ANN401 - depends on the subclass
        namespace: str,
        who: InstanceId,
        *,
        store: str = "",
        **times: float,
    ) -> None:
        self.door, self.namespace, self.instance_id = door, namespace, who
        self.store: str = store or str(door.label)
        self.times = {"safe_guard": inf, **times}

    @property
    def session(self) -> int:
        """Return the same as `MachineIdDistributor.session`."""
        return 0

    async def run(self, attempt: Callable[[At], Coroutine[Any, Any, T | None]]) -> T:
        """Run an attempt until it returns a result: None means a conflict."""
        if (until_done := getattr(self.door, "until_done", None)) is not None:
            done: T = await until_done(attempt)
            return done
        for _ in range(ATTEMPTS):
            if (found := await attempt(self.door)) is not None:
                return found
        reason = f"other processes keep changing the row of {self.instance_id.text}"
        raise StoreUnavailableError(self.store, reason, remedy="try again")

    @abstractmethod
    async def find(self, at: At, bits: int, now_ms: int, latest_ms: int) -> Entry | None:
        """Find an entry that can be taken; None to try again.

        The arguments are those of `MachineIdDistributor.distribute`.
        """

    @abstractmethod
    async def read(self, at: At, worker_id: int) -> Entry | None:
        """Read an entry; None if it does not exist."""

    async def read_all(self, at: At) -> list[tuple[str, Entry | CosIdError]]:
        """Read all held entries, each with its name; a damaged one appears as an error."""
        raise NotImplementedError

    @abstractmethod
    async def write(self, at: At, entry: Entry, new: int) -> bool:
        """Replace the stamp of an own entry; return False if it has changed since it was read."""

    async def claim(self, at: At, entry: Entry, new: int) -> bool:
        """Take an entry that was found; return False if it has changed since it was read."""
        return await self.write(at, entry, new)

    async def release(self, at: At, entry: Entry, new: int) -> bool:
        """Release an own entry with its last stamp; return False if it has changed meanwhile."""
        return await self.write(at, entry, new)

    def why_lost(self, entry: Entry | None, stamps: set[int], now_ms: int | None) -> str | None:  # noqa: ARG002 - most ids are permanent
        """Return why an entry is lost, or None if it is not.

        Args:
            entry: the entry as it was read.
            stamps: the stamps that this process may have written last.
            now_ms: the wall clock; None when the entry is released.
        """
        if entry is None:
            return "its entry is gone"
        if entry.owner != self.instance_id.text:
            return f"{entry.owner or 'no process'} holds it"
        if entry.stamp not in stamps:
            return f"another process uses {self.instance_id.text}, too"
        return None

    def adopt(self) -> None:
        """Reset the state in a forked child."""


def refuse_region(options: Mapping[str, Any]) -> None:
    """Raise if a region is given: the registry's other processes do not know regions."""
    if (region := options.get("region")) is not None:
        rule = "cannot be given: the numbers of this registry are not divided into regions"
        raise InvalidArgumentError("region", region, rule)


class WorkerIdDistributor(NotCopyable, MachineIdDistributor, Generic[At]):
    """A worker id in another system's registry.

    Get it from a store, for example from ``LeafZkNormalStore(client,
    ...).machine_id_distributor()``.
    """

    def __init__(self, registry: Registry[At], restart: RestartPlace | None = None) -> None:
        """Describe the instance; nothing is sent yet.

        Args:
            registry: the system's registry.
            restart: the place where an address keeps its record on this machine; None for no
                record.

        Raises:
            InvalidArgumentError: a name is too long.
        """
        who = registry.instance_id
        self.restart = restart
        super().__init__(namespace=registry.namespace, instance_id=who, **registry.times)
        self.store, self.is_leased, self._registry = registry.store, registry.is_leased, registry
        self._begin()

    def _begin(self) -> None:
        self._fork_generation = fork.generation
        self._worker_id = self._floor_ms = self._life = -1
        self._latest_ms = MAX_MS - LIVES * self._registry.by_address
        # This object's stamps, one of which is stored as long as the id is held.
        self._stamps = set[int]()
        self._claims = set[int]()  # claims since the last grant, whose answers may be lost
        self._unconfirmed_ms = -1  # the registry has no later stamp if no process has written since
        self._note()

    def _note(self) -> None:
        """Remember the current name; another name means a record with which the lease begins."""
        self._named = "" if self.restart is None else self.restart.renewal

    @property
    def session(self) -> int:
        """A number that changes each time the session that holds the id is interrupted."""
        return self._registry.session

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a worker id; its floor is the time that is stored with it.

        The address keeps its own worker id.  An earlier process of the same address loses it, and
        detects that at its next renewal; new ids are above all times that the earlier process may
        use.

        A cancelled or repeated call may have used up one of uid-generator's numbers.

        Raises:
            InvalidArgumentError: an argument is outside its range.
            WorkerIdsUsedUpError: the number does not fit ``bits``, and numbers are used only once.
            LeafWorkerIdsUsedUpError: the same for Leaf.
            MachineIdOverflowError: all worker ids of a pool are held.
            MachineIdInUseError: another process has the requested worker id.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreError: the store refuses or cannot be reached.
            ForkedError: the address or the session belongs to the parent process.
        """
        check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        self._ensure_own()

        registry = self._registry

        async def attempt(at: At) -> tuple[Entry, int] | None:
            entry = await registry.find(at, bits, now_ms, latest_ms)
            if entry is None:
                return None
            claimed = claim_stamp(entry.stamp, now_ms) if registry.by_address else entry.stamp
            if self.restart is not None and entry.stamp not in self._claims:
                self.restart.former = name_of({entry.stamp}, entry.worker_id)
            self._claims.add(claimed)
            return (entry, claimed) if await registry.claim(at, entry, claimed) else None

        entry, claimed = await registry.run(attempt)
        self._ensure_own()
        self._worker_id, self._floor_ms = entry.worker_id, entry.stamp
        self._life, self._stamps = claimed, {claimed}
        self._claims, self._unconfirmed_ms = set[int](), -1
        self._note()
        return MachineGrant(entry.worker_id, entry.stamp)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Raise the stored time to the fence; it is never lowered here.

        Leaf writes its clock's time.  The fence is ahead of the clock, so a Leaf node that starts
        with the same address after a crash waits until the fence has passed.

        Raises:
            MachineIdLostError: another process holds the id, or none does; nothing was written.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: the entry is damaged; nothing was written.
            StoreError: the store refuses or cannot be reached.
            ForkedError: the address or the session belongs to the parent process.
        """
        registry = self._registry
        check_integer("machine_id", machine_id, at_least=0)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("fence_ms", fence_ms, at_least=-1, at_most=self._latest_ms)
        self._ensure_own()
        self._resume(machine_id)
        if registry.by_address and machine_id != self._worker_id:
            raise self._lost(machine_id, "this object does not hold it")

        async def attempt(at: At) -> bool | None:
            entry, stamps = await registry.read(at, machine_id), self._stamps
            if entry is not None and self._is_former(entry.stamp):
                stamps.add(entry.stamp)
            reason = registry.why_lost(entry, stamps, now_ms)
            if entry is None or reason is not None:
                raise self._lost(machine_id, str(reason))
            new = max(fence_ms, entry.stamp)
            if registry.by_address:
                life = entry.stamp + 1 if self._life < 0 else self._life
                new = stamp(life, max(now_ms, fence_ms, entry.stamp + 1))
            stamps.add(new)  # it may be written even if no answer arrives
            self._name(stamps)
            await self._announce(entry)
            if not await registry.write(at, entry, new):
                return None
            if stamps is self._stamps:  # otherwise the id was taken again meanwhile
                self._stamps, self._life, self._unconfirmed_ms = {new}, new, -1
                self._name(self._stamps)
            return True

        await registry.run(attempt)
        self._ensure_own()

    def _resume(self, machine_id: int) -> None:
        """Continue with the entry of a former process of this machine, if the lease began so."""
        if self.restart is None or self.restart.renewal == self._named:
            return
        self._note()
        self._worker_id, self._life = machine_id, -1
        self._stamps = named_stamps(self._named, machine_id)
        self._unconfirmed_ms = unconfirmed_since_ms(self._named, machine_id)

    def _is_former(self, found_ms: int) -> bool:
        """Return whether a stamp is from before a resumed entry, or from a lost call to take it."""
        is_resumed = self.restart is not None and self._life < 0
        return is_resumed and (found_ms in self._claims or max(found_ms, 0) <= self._unconfirmed_ms)

    def _name(self, stamps: set[int]) -> None:
        """Name the last write for its record, after the name of an unconfirmed start."""
        if self.restart is not None and stamps is self._stamps:
            name = name_of(stamps, self._worker_id)
            if self._unconfirmed_ms >= 0:
                name = f"{self.restart.renewal.partition('|')[0]}|{name}"
            self.restart.renewal = name
            self._note()

    async def _announce(self, found: Entry) -> None:
        """Name the next write in the previous record, so that a crash does not lose the entry.

        Otherwise a process that is killed between the two writes would have to wait for its fence.
        If the lease has ``offline`` seconds, the record bounds all ids until the next record is on
        the disk.
        """
        restart = self.restart
        if restart is None or not restart.offline or restart.written is None:
            return
        named = named_stamps(restart.written.renewal, found.worker_id)
        if found.stamp in named or self._unconfirmed_ms >= 0:
            await restart.write(replace(restart.written, renewal=restart.renewal))

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Lower the stored time to the last one used; do nothing if the id is no longer held.

        A ZooKeeper node that others can take is released.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            StoreError: the store refuses or cannot be reached.
        """
        check_integer("machine_id", machine_id, at_least=0)
        check_integer("last_ms", last_ms, at_least=-1, at_most=self._latest_ms)
        if self._fork_generation != fork.generation or machine_id != self._worker_id:
            return
        registry, stamps, floor_ms, life = self._registry, self._stamps, self._floor_ms, self._life
        if self.restart is not None and last_ms >= 0:
            # A lowered stamp may occur a second time.
            if not await self.restart.write(replace(VOID, floor_ms=last_ms)):
                return
            floor_ms = last_ms  # the lease may have begun below the stored time

        async def attempt(at: At) -> bool | None:
            entry = await registry.read(at, machine_id)
            if entry is None or registry.why_lost(entry, stamps, None) is not None:
                return True
            least = entry.stamp
            if last_ms >= 0:
                least = max(last_ms, floor_ms) if registry.by_address else min(least, last_ms)
            new = stamp(life, least) if registry.by_address else least
            return await registry.release(at, entry, new) or None

        await registry.run(attempt)
        if stamps is self._stamps:
            self._begin()

    def _lost(self, worker_id: int, reason: str) -> MachineIdLostError:
        return MachineIdLostError(self.namespace, worker_id, reason=reason)

    def _ensure_own(self) -> None:
        another = "create a distributor with another port"
        remedy = another if self._registry.by_address else "open it again"
        fork.ensure_own(self._fork_generation, repr(self), remedy=f"{remedy} in this process")

    async def aclose(self) -> None:
        """Unlock the ``state_dir``; the store stays open."""
        self._named, self._claims = "", set[int]()
        if self.restart is not None:
            await self.restart.leave()

    async def aopen(self) -> None:
        """Get ready in this process; connections are opened on first use.

        A forked child takes another worker id; if worker ids belong to an address, that is an
        error.

        Raises:
            ForkedError: the address, or the user's engine or client, belongs to the parent process.
        """
        if self._fork_generation != fork.generation and not self._registry.by_address:
            self._registry.adopt()
            self._begin()
        self._ensure_own()
        await self._registry.door.aopen()


class WorkerIdStore(NotCopyable, Store):
    """One registry and one address: one worker id for all of this process.

    Attributes:
        scheme: the system's name, which precedes the server's scheme in a URL.
        options: the options of a URL, and the functions that read their texts.
        needs_all: whether all options are required.
        extras: additional optional options.
        why: why there are no counters.
        _connect: returns the constructor's argument for a server's URL; it connects on first use.
        _door: the connection, which is opened and closed with the store.
    """

    _door: Any
    _machine: MachineIdDistributor
    _registry: Registry[Any]
    _connect: ClassVar[Any]
    scheme: ClassVar[str]
    options: ClassVar[Options] = {}
    needs_all: ClassVar[bool] = True
    extras: ClassVar[Options] = {}
    why: ClassVar[str] = "it has worker ids only"

    def _on(
        self,
        registry: Registry[Any],
        options: RestartOptions | None = None,
        *,
        inherit: Callable[[], RestartRecord | None] = lambda: None,
    ) -> None:
        self._registry, self._door = registry, registry.door
        restart = restart_file(
            options or RestartOptions(),
            interval=registry.times["interval"],
            store=self.scheme,
            address=registry.door.address,
            namespace=registry.namespace,
            instance=registry.instance_id.text,
            inherit=inherit,
        )
        self._machine = WorkerIdDistributor(registry, restart)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store with its own connections, opened on first use; nothing is sent yet.

        Args:
            url: the server's URL, with the system's name as a prefix and the arguments of
                ``__init__`` in its query:
                ``leaf-zk-normal+zookeeper://a,b,c/?name=shop&ip=10.0.0.1&port=8080``
                (``leaf-zk-recycle+`` for the fork's pools),
                ``leaf-workerid+mysql://user:password@host/leaf?ip=10.0.0.1&port=8080``,
                ``twitter+zookeeper://a,b,c?datacenter_id=3&host=10.0.0.9&port=7609`` or
                ``uid-generator+mysql://user:password@host/uid``.

        Raises:
            InvalidArgumentError: the URL is malformed, lacks something, or names something else.
            MissingExtraError: the driver is not installed.
        """
        server, options = split_options(
            url, cls.scheme, cls.options, needs_all=cls.needs_all, extras=cls.extras
        )
        return cast("Callable[..., Self]", cls)(cls._connect(server), **options)

    def __repr__(self) -> str:
        """Show the registry and the address."""
        machine = self._machine
        return f"<{type(self).__name__} {machine.namespace} {machine.instance_id.text}>"

    def machine_id_distributor(self, **unused: Any) -> MachineIdDistributor:  # noqa: ANN401 - options of any store
        """Return the distributor of this address; always the same, since there is one worker id.

        Args:
            **unused: ignored: the registry has no namespace, the address is the instance, and the
                times are the system's.

        Raises:
            InvalidArgumentError: ``state_dir`` or ``offline`` is given, which are options of the
                store; or ``region``, which the registry does not support.
        """
        refuse_region(unused)
        for name in ("state_dir", "offline"):
            if unused.get(name):
                rule = "is an option of the store; give it in the store's URL or constructor"
                raise InvalidArgumentError(name, unused[name], rule)
        return self._machine

    def segment_distributor(self, **unused: object) -> IdSegmentDistributor:  # noqa: ARG002 - there are no counters
        """Raise `UnsupportedByStoreError`, because there are only worker ids."""
        self._refuse()

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Do nothing, because missing parts are created when a worker id is taken."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:  # noqa: ARG002 - there are none
        """Return an empty list, because there are no counters."""
        return ()

    async def set_floor(self, **unused: object) -> Counter:  # noqa: ARG002 - there are no counters
        """Raise `UnsupportedByStoreError`, because there are only worker ids."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedByStoreError(
            type(self).__name__, self.why, remedy="take a store of counters for them"
        )

    async def aopen(self) -> None:
        """Get ready in this process.

        Raises:
            ForkedError: the user's client belongs to the parent process.
        """
        await self._door.aopen()

    async def aclose(self) -> None:
        """Close connections created from a URL, and end their session; a user's client stays open.

        Raises:
            WrongLoopError: the connection is in use on another event loop.
        """
        await self._door.aclose()


async def examine_registry(registry: Registry[Any], bits: int) -> list[Examined]:
    """Read and explain all held worker ids; nothing is written.

    Args:
        registry: the system's registry.
        bits: the width of its worker ids in bits.

    Raises:
        StoreError: the store refuses or cannot be reached.
    """
    found = await registry.run(registry.read_all)
    holders = Counted(each.worker_id for _, each in found if isinstance(each, Entry))
    return [_examined(name, each, bits, holders) for name, each in found]


def _examined(name: str, entry: Entry | CosIdError, bits: int, holders: Counted[int]) -> Examined:
    if isinstance(entry, CosIdError):
        facts: dict[str, Any] = {"stored": None, "meaning": "damaged", "problems": (str(entry),)}
        return Examined(name=name, next_id=None, **facts)
    number, at = entry.worker_id, f"ids up to {iso_text(entry.stamp)}"
    meaning = f"its worker id; {at if entry.stamp >= 0 else 'no time is stored'}"
    wrong = {
        f"worker id {number} does not fit {bits} bits": bool(number >> bits),
        f"worker id {number} has {holders[number]} holders: ids repeat": holders[number] > 1,
    }
    problems = tuple(each for each in wrong if wrong[each])
    return Examined(name=name, stored=number, meaning=meaning, next_id=None, problems=problems)
