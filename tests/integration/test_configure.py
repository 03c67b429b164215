"""Settings on real servers, several of them in one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from aiocosid.errors import StoreAuthenticationError
from aiocosid.provider import configure, store_from_url
from aiocosid.provider.settings import check_settings, load_settings
from tests.machine_marks import initialize_namespace
from tests.servers.valkey import ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@pytest.fixture
def file(valkey: ValkeyServer, postgres_database: str, namespace: str, tmp_path: Path) -> Path:
    """Settings with three stores."""
    initialize_namespace(valkey, namespace)
    path = tmp_path / "ids.toml"
    path.write_text(
        f"""
namespace = "{namespace}"
store = "fast"

[stores]
fast = "{valkey.url}"
books = "{postgres_database}"
own = "sqlite:///{tmp_path}/ids.db"

[share]
kind = "snowflake"
converter = "radix62"

[generators.order]
kind = "chain"
step = 10

[generators.daily]
kind = "grouped"
group_by = "day"
zone = "UTC"
store = "own"

[generators.bill]
kind = "segment"
store = "books"

[generators.token]
kind = "cosid_text"
store = "books"
namespace = "{namespace}.token"
"""
    )
    return path


async def test_every_store_in_one_file(file: Path, namespace: str) -> None:
    """Opened, closed, opened anew: ids rise in each of them, and machine ids are given back."""
    seen: dict[str, list[object]] = {}
    provider, urls = configure(file), load_settings(file).stores.values()
    await create_tables(file)
    books = load_settings(file).stores["books"]
    assert isinstance(books, SecretStr)
    async with store_from_url(books.get_secret_value()) as store:
        await store.initialize_namespace(namespace=f"{namespace}.token")
    for _ in range(2):
        async with provider as ids:
            for name in ids:
                seen.setdefault(name, []).extend(await ids[name].next_ids(3))
    assert set(seen) == {"__share__", "order", "daily", "bill", "token"}
    for name, found in seen.items():
        assert (len(found), len(set(found))) == (6, 6), name
    assert seen["order"][:3] == [1, 2, 3]
    report = check_settings(file)
    assert {each.store.partition(":")[0] for each in report.generators} >= {"sqlite", "postgresql"}
    for url in urls:
        assert isinstance(url, SecretStr)
        async with store_from_url(url.get_secret_value()) as store:
            machines = await store.machines(namespace=namespace)
            assert {machine.instance_id for machine in machines} <= {""}


async def create_tables(file: Path) -> None:
    """Get the stores ready."""
    for url in load_settings(file).stores.values():
        assert isinstance(url, SecretStr)
        async with store_from_url(url.get_secret_value()) as store:
            await store.create_schema()


def with_another_password(file: Path, valkey: ValkeyServer) -> None:
    """Have the first store refuse."""
    url = f"redis://:wr0ng@{valkey.url.rpartition('@')[2]}"
    lines = file.read_text().splitlines()
    changed = [f'fast = "{url}"' if each.startswith("fast") else each for each in lines]
    file.write_text("\n".join(changed))


async def test_a_store_that_refuses_names_the_generator(
    file: Path, valkey_password: ValkeyServer
) -> None:
    """The application does not start, and says which generator it was; no password in it."""
    await create_tables(file)
    with_another_password(file, valkey_password)
    provider = configure(file)
    with pytest.raises(StoreAuthenticationError, match=r"generator '(order|__share__)'") as caught:
        await provider.__aenter__()
    assert "wr0ng" not in str(caught.value)
