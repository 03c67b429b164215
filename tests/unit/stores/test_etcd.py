"""What stores on etcd take, and what they show of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.stores._url import read_url
from aiocosid.stores._url_specs import ETCD
from aiocosid.stores.etcd import EtcdStore, _driver

SECRET = "horse"  # noqa: S105 - to be searched for in errors


def test_files_are_read_when_the_url_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which the driver takes them; one that is missing is refused at once."""
    given: list[object] = []

    def credentials(*files: object) -> None:
        given.extend(files)

    monkeypatch.setattr(_driver.grpc, "ssl_channel_credentials", credentials)
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


def test_missing_driver_names_the_extra() -> None:
    """The module says at once what to install."""
    code = "import sys; sys.modules['aetcd'] = None; import aiocosid.stores.etcd"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert "MissingExtraError: etcd is not installed" in done.stderr
    assert "pip install 'aiocosid[etcd]'" in done.stderr
