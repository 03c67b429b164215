"""What stores on etcd take, and what they show of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.stores._url import ETCD, read_url
from aiocosid.stores.etcd import EtcdStore, _link
from tests.script import run_python

SECRET = "horse"  # noqa: S105 - to be searched for in errors


def test_files_are_read_when_the_url_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which the driver takes them; one that is missing is refused at once."""
    given: list[object] = []

    def credentials(*files: object) -> None:
        given.extend(files)

    monkeypatch.setattr(_link.grpc, "ssl_channel_credentials", credentials)
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(name)
    options = f"ssl_ca_certs={tmp_path}/ca&ssl_certfile={tmp_path}/crt&ssl_keyfile={tmp_path}/key"
    EtcdStore.from_url(f"etcds://h?{options}")
    assert given == [b"ca", b"key", b"crt"]
    given.clear()
    EtcdStore.from_url("etcds://h")
    assert given == [None, None, None]
    with pytest.raises(InvalidArgumentError, match="for ssl_ca_certs"):
        EtcdStore.from_url("etcds://h?ssl_ca_certs=/none")


def test_the_password_is_shown_nowhere() -> None:
    """Not by a store, nor by what it is made of, nor by an error."""
    store = EtcdStore.from_url(f"etcd://user:{SECRET}@h,i/p")
    assert repr(store) == "<EtcdStore h:2379,i:2379/p>"
    assert SECRET not in f"{store!r} {read_url(f'etcd://user:{SECRET}@h', ETCD)!r}"
    with pytest.raises(InvalidArgumentError) as caught:
        EtcdStore.from_url(f"etcd://user:{SECRET}@h:x")
    assert SECRET not in str(caught.value)


def test_what_is_no_client_is_refused() -> None:
    """And a prefix of nothing."""
    for client in (None, object(), "etcd://h"):
        with pytest.raises(InvalidArgumentError, match=r"aetcd\.Client"):
            EtcdStore(client)
    for prefix in ("", "/", "a\0b"):
        with pytest.raises(InvalidArgumentError, match="prefix"):
            EtcdStore(None, prefix=prefix)


def test_a_call_waits_in_line_while_the_process_forks() -> None:
    """In the child it ends; it does not go on on what is the parent's."""
    assert run_python(FORKED_IN_LINE) == {"child": [["first"], 2], "parent": ["first", "second"]}


FORKED_IN_LINE = """
import asyncio, json, os
from aiocosid.errors import ForkedError
from aiocosid.stores._connection import BorrowedConnection
from aiocosid.stores.etcd._link import EtcdLink

class Session:
    def __init__(self):
        self.asked, self.answers = [], asyncio.Event()

    async def call(self, ask):
        self.asked.append(ask)
        await self.answers.wait()

async def main():
    session = Session()
    link = EtcdLink("a cluster", BorrowedConnection("the session", session))
    calls = [asyncio.create_task(link.call(each, key="key")) for each in ("first", "second")]
    while not session.asked:
        await asyncio.sleep(0)
    read, write = os.pipe()
    pid = os.fork()
    session.answers.set()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    if pid == 0:
        forked = sum(isinstance(each, ForkedError) for each in ends)
        os.write(write, json.dumps([session.asked, forked]).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    print(json.dumps({"child": json.loads(os.read(read, 1000)), "parent": session.asked}))

asyncio.run(main())
"""
