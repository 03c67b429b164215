"""What the pages say about Leaf's table: the rights, and the statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocosid.compat.leaf import LeafStore
from aiocosid.errors import StoreAuthenticationError
from tests.servers import MariadbServer
from tests.servers.mariadb import GUEST, GUEST_PASSWORD

from ._blocks import ROOT, blocks

HOWTO = ROOT / "docs" / "migrate" / "from-leaf.md"
SCHEMA = ROOT / "docs" / "reference" / "schema.md"


def statement(page: Path, beginning: str) -> str:
    """The one SQL block of a page that begins so, in one line."""
    (found,) = [block.source for block in blocks(page) if block.source.startswith(beginning)]
    return " ".join(found.split())


def test_the_statement_is_the_one_that_is_sent() -> None:
    assert statement(SCHEMA, "UPDATE leaf_alloc") == LeafStore.table.grant("mysql")


@pytest.mark.integration
async def test_the_rights_suffice(mariadb: MariadbServer, mariadb_database: str) -> None:
    """To take ids, look and raise; not to create a tag."""
    database = mariadb_database.rpartition("/")[2]
    async with LeafStore.from_url(mariadb_database) as owner:
        await owner.create_schema()
        await owner.create_tag("order", step=10)
    grant = statement(HOWTO, "GRANT").replace(" app;", f" {GUEST}")
    mariadb.execute(grant, database=database)
    url = mariadb.url_for(user=GUEST, password=GUEST_PASSWORD, database=database)
    async with LeafStore.from_url(url) as store:
        assert await (await store.tag("order")).next_max_id(10) == 10
        assert (await store.set_floor(name="order", above=99)).last_max_id == 99
        assert len(await store.examine()) == 1
        with pytest.raises(StoreAuthenticationError):
            await store.create_tag("other", step=10)
