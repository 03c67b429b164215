"""Keys that published Lua scripts leave on Redis or Valkey: their meaning and their problems.

Requires the ``redis`` extra.  Nothing is written.  Three scripts are supported:

* the sharded generator's, whose counters `RedisStore.sequence_distributor` continues;
* icicle's, with one sequence for each server;
* redis-id-generator's, with a counter for each tag, partition and millisecond.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, Self

from .._life.fork import NotCopyable
from ..abc import DEFAULT_MAX_SEQUENCE, Store
from ..abc.checks import check_integer, check_text
from ..abc.dates import iso_text
from ..errors import InvalidArgumentError, UnsupportedByStoreError
from ..stores.redis import RedisStore
from ..stores.redis.keys import Key, read_keys
from ._table import Examined
from ._url import split_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..abc import Counter, IdSegmentDistributor
    from ._url import Options

__all__ = ("RedisLuaStore",)

_MS: Final = 1000
_SECOND: Final = "<second>"
_DIGITS: Final = "[0-9]" * 10
_NUMBER: Final = re.compile(rb"-?[0-9]{1,19}")
_OURS: Final = "aiocosid:"

_LOCK: Final = "lock-"
_LOCK_MS: Final = 1000  # the time for which the script locks a second
_ANY_COUNTER: Final = re.compile(r"(.*(?<![0-9]))([1-9][0-9]{9})", re.DOTALL)
_SECOND_SHIFT: Final = 31  # of an id, below it 12 bits of the shard and 19 of the sequence
_LAST_SECOND: Final = 2**32 - 1  # since the epoch

_ICICLE: Final = "icicle-generator-"
_ICICLE_SEQUENCE: Final = f"{_ICICLE}sequence"
_ICICLE_SHARD: Final = f"{_ICICLE}logical-shard-id"
_ICICLE_LOCK: Final = f"{_ICICLE}lock"
_ICICLE_KEYS: Final = (_ICICLE_SEQUENCE, _ICICLE_SHARD, _ICICLE_LOCK)
_ICICLE_MOST: Final = 4095
_ICICLE_SHARDS: Final = range(1, 1024)

_TAGGED: Final = re.compile(
    r"__idgenerator_.+?_([0-9]{1,9})(?:_([0-9]{10})_([0-9]{1,3}))?",  # older keys have no time
    re.DOTALL,
)
_PARTITIONS: Final = 4096
_TAGGED_MOST: Final = 1023
_TAGGED_SHIFT: Final = 22


@dataclass(slots=True)
class _Seconds:
    """The counters and locks under one name of the sharded generator, by their second."""

    counters: dict[int, Key] = field(default_factory=dict)
    locks: dict[int, Key] = field(default_factory=dict)


class RedisLuaStore(NotCopyable, Store):
    """The keys of published Lua scripts on one server, one cluster, or servers under Sentinel.

    It only reads.  Create ids with `aiocosid.snowflake.ShardedId` on
    `aiocosid.stores.redis.RedisStore.sequence_distributor`, with the same keys.  Runs on asyncio.
    """

    scheme: Final = "redis-lua"
    options: Final[Options] = {"key": str, "epoch": int, "max_sequence": int}

    def __init__(
        self,
        redis: RedisStore,
        *,
        key: str | None = None,
        epoch: int | None = None,
        max_sequence: int = DEFAULT_MAX_SEQUENCE,
    ) -> None:
        """Use a store, which is closed together with this one; nothing is sent yet.

        Args:
            redis: the store on the server.
            key: the sharded generator's keys, with ``<second>`` for the unix second, for example
                ``order<second>``; without it, all keys that end in ten digits and hold a number
                count as its counters.
            epoch: the second since 1970 at which its layout begins; without it no next id is
                reported.
            max_sequence: the highest sequence that its nodes pass to the script.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        if key is not None:
            check_text("key", key)
            if key.count(_SECOND) != 1:
                raise InvalidArgumentError("key", key, f"must be a string with {_SECOND} once")
        if epoch is not None:
            check_integer("epoch", epoch, at_least=0, at_most=_LAST_SECOND)
        check_integer("max_sequence", max_sequence, at_least=1, at_most=DEFAULT_MAX_SEQUENCE)
        self._redis, self._key, self._epoch, self._most = redis, key, epoch, max_sequence

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store with its own connections, opened on first use; nothing is sent yet.

        Args:
            url: a URL of `aiocosid.stores.redis.RedisStore.from_url` with the prefix
                ``redis-lua+``, and the arguments of ``__init__`` in its query:
                ``redis-lua+redis://host/0?key=order<second>&epoch=1546300800``.

        Raises:
            InvalidArgumentError: the URL is malformed, or names something else.
        """
        server, options = split_options(url, cls.scheme, cls.options)
        return cls(RedisStore.from_url(server), **options)

    def __repr__(self) -> str:
        """Show the server, without credentials."""
        return f"<{type(self).__name__} {self._redis!r}>"

    async def examine(self) -> Sequence[Examined]:
        """Read and explain all counters and locks, ordered by name; nothing is written.

        The next id is above all ids that the scripts can have issued with these keys.

        Raises:
            StoreError: the store refuses or cannot be reached.
        """
        found = await read_keys(
            self._redis,
            names=_ICICLE_KEYS,
            patterns=(*self._patterns(), "__idgenerator_*"),
            accept=lambda name: bool(_TAGGED.fullmatch(name) or self._parts(name)),
        )
        groups, examined = defaultdict[str, _Seconds](_Seconds), list[Examined]()
        for key in found:
            if match := _TAGGED.fullmatch(key.name):
                examined.append(_of_tag(key, match))
            elif parts := self._parts(key.name):
                name, second, is_lock = parts
                group = groups[name]
                (group.locks if is_lock else group.counters)[second] = key
        examined += [self._of_name(*each) for each in groups.items() if self._counts(each[1])]
        if icicle := {key.name: key for key in found if key.name in _ICICLE_KEYS}:
            examined.append(_of_icicle(icicle))
        return sorted(examined, key=lambda each: each.name)

    def _patterns(self) -> Iterable[str]:
        if self._key is None:
            return (f"*{_DIGITS}",)  # including locks
        counter = _DIGITS.join(re.sub(r"([*?\[\]\\])", r"\\\1", each) for each in self._around())
        return counter, f"{_LOCK}{counter}"

    def _around(self) -> tuple[str, str]:
        before, _, after = (self._key or _SECOND).partition(_SECOND)
        return before, after

    def _parts(self, name: str) -> tuple[str, int, bool] | None:
        """Return a key's name without its second, the second, and whether the key is a lock."""
        if self._key is not None:
            before, after = map(re.escape, self._around())
            match = re.fullmatch(f"({_LOCK})?{before}([1-9][0-9]{{9}}){after}", name)
            return (self._key, int(match[2]), bool(match[1])) if match else None
        is_lock = name.startswith(_LOCK)
        match = _ANY_COUNTER.fullmatch(name.removeprefix(_LOCK))
        if match is None or name.startswith(_OURS):
            return None
        return f"{match[1]}{_SECOND}", int(match[2]), is_lock

    def _counts(self, group: _Seconds) -> bool:
        """Whether keys that were found only by their form belong to the generator."""
        counters = group.counters.values()
        return self._key is not None or any(_number(key) is not None for key in counters)

    def _of_name(self, name: str, group: _Seconds) -> Examined:
        problems = list(self._problems(group))
        stored = next_id = None
        meaning = f"no counter; locks: {len(group.locks)}"
        if group.counters:
            second = max(group.counters)
            stored, time = _number(group.counters[second]), iso_text(second * _MS)
            meaning = f"the last sequence granted of {time}; counters: {len(group.counters)}"
            next_id = self._id_after(second)
            if next_id is None and self._epoch is not None:
                problems.append(f"{time} does not fit the epoch, {iso_text(self._epoch * _MS)}")
        facts = {"stored": stored, "next_id": next_id}
        return Examined(name=name, meaning=meaning, problems=tuple(problems), **facts)

    def _id_after(self, second: int) -> int | None:
        """Return the lowest id in the second after this one, if the epoch is known and fits."""
        since = -1 if self._epoch is None else second - self._epoch
        return since + 1 << _SECOND_SHIFT | 1 if 0 <= since < _LAST_SECOND else None

    def _problems(self, group: _Seconds) -> Iterable[str]:
        numbers = {key.name: _number(key) for key in group.counters.values()}
        endless = [key.name for key in group.counters.values() if key.ttl_ms is None]
        locked = [key.name for key in group.locks.values() if key.ttl_ms is None]
        longer = [key.name for key in group.locks.values() if (key.ttl_ms or 0) > _LOCK_MS]
        spent = [name for name, each in numbers.items() if each is not None and each >= self._most]
        below = [name for name, each in numbers.items() if each is not None and each < 1]
        wrong = [name for name, each in numbers.items() if each is None]
        texts = {
            "no sequence is stored": wrong,
            "the sequence is below 1, by a grant of a negative size: sequences repeat": below,
            f"all {self._most} sequences are granted; nodes of the script may get ranges that end "
            "before they begin": spent,
            "it never expires; delete it once its second is past": endless,
            "the lock never expires: nodes that use the script get no ids of that second": locked,
            f"the lock lasts longer than the {_LOCK_MS} ms of the script": longer,
        }
        for text, names in texts.items():
            if names:
                more = f" and {len(names) - 1} more" if names[1:] else ""
                yield f"{max(names)}{more}: {text}"

    # The store supports nothing else.

    def segment_distributor(self, **unused: object) -> IdSegmentDistributor:  # noqa: ARG002 - none
        """Raise `UnsupportedByStoreError`, because each counter is for one second only."""
        self._refuse()

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        """Do nothing, because there is no schema."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:  # noqa: ARG002 - none
        """Return an empty list, because each counter is for one second only."""
        return ()

    async def set_floor(self, **unused: object) -> Counter:  # noqa: ARG002 - none
        """Raise `UnsupportedByStoreError`, because each counter is for one second only."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        why, remedy = "each of its counters is for one second", "use ShardedId on RedisStore"
        raise UnsupportedByStoreError(type(self).__name__, why, remedy=remedy)

    async def aopen(self) -> None:
        """Get ready in this process; connections are opened on first use.

        Raises:
            ForkedError: the client was passed in and belongs to the parent process.
        """
        await self._redis.aopen()

    async def aclose(self) -> None:
        """Close the store that was passed in.

        Raises:
            WrongLoopError: the store is in use on another event loop.
        """
        await self._redis.aclose()


def _number(key: Key | None) -> int | None:
    """Return a key's value, or None if it is not an integer."""
    value = None if key is None or key.value is None else _NUMBER.fullmatch(key.value)
    return None if value is None else int(value[0])


def _of_icicle(found: Mapping[str, Key]) -> Examined:
    """Explain icicle's three keys, which are one generator for the whole server."""
    key, lock = found.get(_ICICLE_SEQUENCE), found.get(_ICICLE_LOCK)
    stored, shard = _number(key), _number(found.get(_ICICLE_SHARD))
    shards = f"a number from {_ICICLE_SHARDS[0]} to {_ICICLE_SHARDS[-1]}"
    is_wrong = key is not None and (stored is None or not -1 <= stored <= _ICICLE_MOST)
    wrong = {
        f"{_ICICLE_SHARD} is not {shards}: no id is handed out": shard not in _ICICLE_SHARDS,
        f"it is not a number from -1 to {_ICICLE_MOST}": is_wrong,
        "it expires, and then ids may repeat": key is not None and key.ttl_ms is not None,
        f"{_ICICLE_LOCK} never expires: no id is handed out": lock is not None
        and lock.ttl_ms is None,
    }
    whose = "an unknown shard" if shard is None else f"shard {shard}"
    return Examined(
        name=_ICICLE_SEQUENCE,
        stored=stored,
        meaning=f"the last sequence of {whose}, which wraps around; ids have the server's time",
        next_id=None,
        problems=tuple(each for each in wrong if wrong[each]),
    )


def _of_tag(key: Key, match: re.Match[str]) -> Examined:
    """Explain a counter of redis-id-generator."""
    stored, partition = _number(key), int(match[1])
    ms = int(match[2]) * _MS + int(match[3]) if match[2] else None
    is_wrong = stored is None or not 1 <= stored <= _TAGGED_MOST
    endless = "it never expires" if ms else "it never expires: at its end the script loops for ever"
    wrong = {
        f"the partition {partition} is not below {_PARTITIONS}": partition >= _PARTITIONS,
        f"it is not a number from 1 to {_TAGGED_MOST}": is_wrong,
        endless: key.ttl_ms is None,
    }
    when = "a millisecond" if ms is None else iso_text(ms)
    return Examined(
        name=key.name,
        stored=stored,
        meaning=f"the last sequence of partition {partition} in {when}",
        next_id=None if ms is None else (ms + 1) << _TAGGED_SHIFT,
        problems=tuple(each for each in wrong if wrong[each]),
    )
