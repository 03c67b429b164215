"""Two that run under one instance id at the same time, and one that is killed and started again."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aiocosid import store_from_url
from aiocosid.snowflake import SnowflakeId
from tests.machine_marks import initialize_namespace

from ._snowflakes import LAYOUT, check_unique, consuming, lease_on, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

INSTANCE = "10.0.0.1:8080"

LEAD = 0.11  # seconds; the shorter, the more ids come between two losses


@pytest.mark.parametrize("kind", ["valkey", "postgres", "sqlite", "etcd", "zookeeper"])
async def test_at_the_same_time(
    request: pytest.FixtureRequest, kind: str, namespace: str, tmp_path: Path
) -> None:
    """They take the machine id from each other; no id comes twice, and at least one goes on."""
    (tmp_path / "ids.db").touch()
    url = f"sqlite:///{tmp_path}/ids.db"
    if kind == "valkey":
        server = request.getfixturevalue("valkey")
        initialize_namespace(server, namespace)
        url = server.url
    elif kind == "postgres":
        url = request.getfixturevalue("postgres_database")
    elif kind in {"etcd", "zookeeper"}:
        url = request.getfixturevalue(kind).url
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        stores = [await enter(store_from_url(url)) for _ in range(2)]
        await stores[0].create_schema()
        await stores[0].initialize_namespace(namespace=namespace)
        leases = [lease_on(each, namespace, INSTANCE, lead=LEAD) for each in stores]
        generators = [await enter(SnowflakeId(each, layout=LAYOUT)) for each in leases]
        twins = await enter(consuming(*generators))

        def losses() -> int:
            told = sum(each.statistics().losses for each in leases)
            return told + sum(each.ended is not None for each in twins)

        def issued() -> int:
            return sum(len(each.ids) for each in twins)

        await until(lambda: losses() > 0)
        before = issued()
        await until(lambda: issued() >= before + 30)
        assert not all(each.ended for each in twins)
        check_unique(*(each.ids for each in twins))


# Writes a line when it is open, and one for each batch of ids.
CHILD = f"""
import asyncio, os, sys
from contextlib import suppress
from aiocosid import store_from_url
from aiocosid.errors import CosIdError, MachineIdUnavailableError
from aiocosid.snowflake import SnowflakeId
from tests.integration._snowflakes import LAYOUT, lease_on

async def main():
    async with store_from_url(sys.argv[1]) as store:
        lease = lease_on(store, "dev", "{INSTANCE}", lead={LEAD})
        async with SnowflakeId(lease, layout=LAYOUT) as gen:
            os.write(1, b"\\n")
            while True:
                try:
                    ids = await gen.next_ids(5)
                except MachineIdUnavailableError:
                    continue
                os.write(1, b" ".join(b"%d" % each for each in ids) + b"\\n")
                await asyncio.sleep(0.002)

with suppress(CosIdError):  # of two of one name it is the one that is told to stop
    asyncio.run(main())
"""


class Life:
    """A process that writes its ids to a file."""

    def __init__(self, url: str, out: Path) -> None:
        self.out = out
        with out.open("wb") as file:
            self.process = subprocess.Popen([sys.executable, "-c", CHILD, url], stdout=file)

    def has_begun(self) -> bool:
        """Whether it has a machine id, or was told that it is to stop."""
        return self.out.stat().st_size > 0 or self.process.poll() == 0

    def ids(self) -> list[int]:
        """All that were written; a line that was cut off is left out."""
        whole = self.out.read_text().rpartition("\n")[0]
        return [int(each) for each in whole.split()]

    def kill(self) -> None:
        """Kill -9, if it still runs."""
        self.process.kill()
        self.process.wait()


async def test_killed_and_started_again_twice(tmp_path: Path) -> None:
    """At once, and under the same name: the next lives begin above what the first has issued."""
    (tmp_path / "ids.db").touch()
    url = f"sqlite:///{tmp_path}/ids.db"
    lives = [Life(url, tmp_path / "first")]
    try:
        await until(lambda: len(lives[0].ids()) > 50)
        lives[0].kill()
        lives += [Life(url, tmp_path / f"next{number}") for number in range(2)]
        await until(lambda: all(each.has_begun() for each in lives))
        issued = sum(len(each.ids()) for each in lives)
        await until(lambda: sum(len(each.ids()) for each in lives) > issued + 30)
    finally:
        for life in lives:
            life.kill()
    ids = [life.ids() for life in lives]
    check_unique(*ids)
    assert max(ids[0]) < min(ids[1] + ids[2])
