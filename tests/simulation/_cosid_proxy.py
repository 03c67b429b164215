"""What CosId's proxy server answers, and when, with Redis behind it.  Pure.

From its protocol alone: it knows nothing of the store that asks it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ("CosIdProxyModel", "Pool")

INT64: Final = 2**63 - 1
DURATION: Final = re.compile(r"PT(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")


class RefusedError(Exception):
    """An answer that is an error, in the body that CosId gives it."""

    def __init__(self, status: int, code: str, msg: str | None, errors: object = ()) -> None:
        super().__init__(msg)
        self.status, self.body = status, {"code": code, "msg": msg, "errors": errors}


@dataclass
class Pool:
    """The machine ids of one namespace, as the scripts of CosId keep them in Redis."""

    entries: dict[str, tuple[int, int]] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)
    last: int = -1

    def distribute(self, instance: str, most: int, now: int, safe_at: int) -> tuple[int, int]:
        """Its own, one given back, a new one, an expired one; -1 for none."""
        if instance in self.entries:
            machine_id, stamp = self.entries[instance]
            entry = machine_id, max(stamp, now)
        elif self.returned:
            machine_id, stamp = next(iter(self.returned.items()))
            del self.returned[machine_id]
            entry = machine_id, max(stamp, now)
        elif self.last < most:
            self.last += 1
            entry = self.last, now
        else:
            for other, (machine_id, stamp) in self.entries.items():
                if stamp <= safe_at:
                    del self.entries[other]
                    entry = machine_id, now
                    break
            else:
                return -1, -1
        self.entries[instance] = entry
        return entry


class CosIdProxyModel:
    """A proxy server and its store.

    Attributes:
        counters: of segments, by ``{namespace}.{name}``; its store, which outlives a restart.
        pools: of machine ids, by namespace; likewise.
        is_lazy: whether it creates a counter when it is asked for ids, as since 3.2.1.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Begin with an empty store.

        Args:
            now_ms: its clock, in milliseconds since 1970.
        """
        self.counters: dict[str, int] = {}
        self.pools: dict[str, Pool] = {}
        self.is_lazy = True
        self._now_ms = now_ms
        self.restart()

    def restart(self) -> None:
        """Forget what the server keeps in its own memory."""
        self._known: set[str] = set()
        self._local: dict[tuple[str, str, bool], tuple[int, int]] = {}

    @property
    def now(self) -> int:
        """Its clock, in milliseconds since 1970."""
        return self._now_ms()

    def respond(self, method: str, raw_path: str, query: Mapping[str, str]) -> tuple[int, bytes]:
        """Do what a request says; return the status and the body of the answer.

        Args:
            method: of HTTP.
            raw_path: as it was sent, without the query.
            query: the parameters.
        """
        try:
            found = self._routed(method, [unquote(part) for part in raw_path.split("/")[1:]], query)
        except RefusedError as refused:
            return refused.status, _compact(refused.body)
        return 200, b"" if found is None else _compact(found)

    def _routed(self, method: str, path: list[str], query: Mapping[str, str]) -> Any:
        match method, path:
            case "POST", ["segments", "distributor", namespace, name]:
                offset, step = _long(query, "offset"), _long(query, "step")
                return self._create(f"{namespace}.{name}", offset, step)
            case "PATCH", ["segments", namespace, name]:
                return self._next(f"{namespace}.{name}", _long(query, "step"))
            case "POST", ["machines", namespace]:
                return self._distribute(namespace, query)
            case "PATCH", ["machines", namespace]:
                return self._guard(namespace, query)
            case "DELETE", ["machines", namespace]:
                return self._revert(namespace, query)
            case _:
                raise RefusedError(404, "404", "no such path")

    # Segments.

    def _create(self, key: str, offset: int, step: int) -> None:
        if step <= 0:
            raise RefusedError(400, "500", f"step:[{step}] must be greater than 0!")
        if key not in self._known:
            self.counters.setdefault(key, offset)
            self._known.add(key)

    def _next(self, key: str, step: int) -> int:
        if step <= 0:
            raise RefusedError(400, "500", f"step:[{step}] must be greater than 0!")
        if key not in self._known:
            if not self.is_lazy:
                raise RefusedError(500, "500", None)
            self._create(key, 0, step)
        if self.counters.get(key, 0) + step > INT64:
            raise RefusedError(500, "500", "Error in execution")
        self.counters[key] = self.counters.get(key, 0) + step
        return self.counters[key]

    # Machine ids.

    def _distribute(self, namespace: str, query: Mapping[str, str]) -> dict[str, int]:
        bits = _long(query, "machineBit")
        instance, stable = _instance(query)
        duration = _duration_ms(query)
        if bits <= 0 or not instance:
            raise RefusedError(400, "500", f"machineBit:[{bits}] must be greater than 0!")
        most = (1 << bits) - 1
        key = namespace, instance, stable
        if key not in self._local:
            safe_at = 0 if stable or duration == INT64 else max(0, self.now - duration)
            pool = self.pools.setdefault(namespace, Pool())
            machine_id, stamp = pool.distribute(instance, most, self.now, safe_at)
            if not 0 <= machine_id <= most:
                raise _overflow(instance, stable, most)
            self._local[key] = machine_id, stamp
        machine_id, stamp = self._local[key]
        if machine_id > most:
            raise _overflow(instance, stable, most)
        return {"machineId": machine_id, "lastTimeStamp": stamp}

    def _guard(self, namespace: str, query: Mapping[str, str]) -> None:
        instance, stable = _instance(query)
        _duration_ms(query)
        key = namespace, instance, stable
        if key not in self._local:
            raise _unknown(namespace, instance, stable)
        machine_id, stamp = self._local[key]
        self._local[key] = machine_id, max(stamp, self.now)
        entries = self.pools.setdefault(namespace, Pool()).entries
        if instance not in entries:
            state = f"MachineState{{machineId={machine_id}, lastTimeStamp={stamp}}}"
            who = f"[{_shown(instance, stable)}]@[{namespace}]"
            said = f"The machine id[{state}] bound to the instance{who} has been lost!."
            raise RefusedError(400, "M-03", said)
        entries[instance] = entries[instance][0], self._local[key][1]

    def _revert(self, namespace: str, query: Mapping[str, str]) -> None:
        instance, stable = _instance(query)
        key = namespace, instance, stable
        if key not in self._local:
            raise _unknown(namespace, instance, stable)
        pool = self.pools.setdefault(namespace, Pool())
        machine_id, stamp = self._local[key]
        stamp = max(stamp, self.now)
        if stable:
            pool.entries[instance] = machine_id, stamp
        elif instance in pool.entries:
            del pool.entries[instance]
            pool.returned[machine_id] = stamp
        del self._local[key]


def _compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _shown(instance: str, stable: bool) -> str:
    return f"InstanceId{{instanceId={instance}, stable={str(stable).lower()}}}"


def _overflow(instance: str, stable: bool, most: int) -> RefusedError:
    who = f"InstanceId:[{_shown(instance, stable)}]"
    said = f"{who} - distribution failed - totalMachineIds:[{most + 1}]"
    return RefusedError(400, "M-01", said)


def _unknown(namespace: str, instance: str, stable: bool) -> RefusedError:
    who = f"[{_shown(instance, stable)}]@[{namespace}]"
    return RefusedError(400, "M-02", f"Not found the MachineState of instance{who}!")


def _long(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not re.fullmatch(r"-?\d{1,19}", text):
        raise RefusedError(400, "400", None, [{"field": name, "msg": "must be a number"}])
    return int(text)


def _instance(query: Mapping[str, str]) -> tuple[str, bool]:
    if "instanceId" not in query or query.get("stable") not in {"true", "false"}:
        raise RefusedError(400, "400", None, [{"field": "stable", "msg": "must not be null"}])
    return query["instanceId"], query["stable"] == "true"


def _duration_ms(query: Mapping[str, str]) -> int:
    match = DURATION.fullmatch(query.get("safeGuardDuration", ""))
    if match is None:
        raise RefusedError(500, "500", "Text cannot be parsed to a Duration")
    hours, minutes, seconds = match.groups(default="0")
    whole, _, part = seconds.partition(".")
    ms = int(hours) * 3_600_000 + int(minutes) * 60_000 + int(whole) * 1000
    return ms + int(f"{part:0<3}"[:3])
