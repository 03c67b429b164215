"""The URLs of etcd, and what is said of a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.stores.etcd import EtcdIdSegmentDistributor, EtcdStore
from aiocosid.stores.etcd._url import Target

SECRET = "horse"  # noqa: S105 - to be searched for in errors


def test_what_a_url_names() -> None:
    """Members, prefix, login and how long a call may take."""
    for url, due in {
        "etcd://": Target(("localhost:2379",), tls=False),
        "etcd://h": Target(("h:2379",), tls=False),
        "ETCD://h:1/": Target(("h:1",), tls=False),
        "etcds://h:1,i,[::1]:3": Target(("h:1", "i:2379", "[::1]:3"), tls=True),
        "etcd://h/a/b/": Target(("h:2379",), tls=False, prefix="/a/b"),
        "etcd://h/a%20b": Target(("h:2379",), tls=False, prefix="/a b"),
        "etcd://h?timeout=0.5": Target(("h:2379",), tls=False, timeout=0.5),
        "etcd://u:p%40%2F@h": Target(("h:2379",), tls=False, login=("u", "p@/")),
        "etcd://u@x:p@h": Target(("h:2379",), tls=False, login=("u@x", "p")),
    }.items():
        assert Target.of(url) == due, url


def test_files(tmp_path: Path) -> None:
    """They are read when the URL is."""
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(name)
    options = f"ssl_ca_certs={tmp_path}/ca&ssl_certfile={tmp_path}/crt&ssl_keyfile={tmp_path}/key"
    assert Target.of(f"etcds://h?{options}").files == {
        "ssl_ca_certs": b"ca",
        "ssl_certfile": b"crt",
        "ssl_keyfile": b"key",
    }


def test_a_wrong_url_is_refused_and_not_shown() -> None:
    """What stands in it may be a password."""
    for url in (
        *("", "etcd", "etcd:h", f"http://u:{SECRET}@h", f"etcd://u:{SECRET}/@h"),
        *(f"etcd://u:{SECRET}@h:x", f"etcd://u:{SECRET}@h:0", f"etcd://u:{SECRET}@h:65536"),
        *(f"etcd://u:{SECRET}@h,", f"etcd://u:{SECRET}@,h", f"etcd://{SECRET}@h"),
        *(f"etcd://:{SECRET}@h", f"etcd://u:{SECRET}?@h", f"etcd://u:{SECRET}@h?x"),
        *(f"etcd://u:{SECRET}@h?timeout={each}" for each in ("", "0", "-1", "inf", "nan", "x")),
        *(f"etcd://u:{SECRET}@h?{each}" for each in ("timeout", "more=1", "ssl_ca_certs=x")),
        *(f"etcds://u:{SECRET}@h?{each}=/none" for each in ("ssl_ca_certs", "ssl_keyfile")),
        f"etcds://u:{SECRET}@h?ssl_certfile={__file__}",
        f"etcd://u:{SECRET}@h/%00",
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            EtcdStore.from_url(url)
        assert SECRET not in str(caught.value), url


def test_the_password_is_shown_nowhere() -> None:
    """Not by a store, nor by what it is made of."""
    store = EtcdStore.from_url(f"etcd://user:{SECRET}@h,i/p")
    assert repr(store) == "<EtcdStore h:2379,i:2379/p>"
    assert SECRET not in f"{store!r} {Target.of(f'etcd://user:{SECRET}@h')!r}"


def test_what_is_no_client_is_refused() -> None:
    """And a prefix of nothing."""
    for client in (None, object(), "etcd://h"):
        with pytest.raises(InvalidArgumentError, match=r"aetcd\.Client"):
            EtcdStore(client)  # type: ignore[arg-type]  # that is the point
    for prefix in ("", "/", "a\0b"):
        with pytest.raises(InvalidArgumentError, match="prefix"):
            EtcdIdSegmentDistributor(None, name="n", prefix=prefix)  # type: ignore[arg-type]


def test_missing_driver_names_the_extra() -> None:
    """The module says at once what to install."""
    code = "import sys; sys.modules['aetcd'] = None; import aiocosid.stores.etcd"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert "MissingExtraError: etcd is not installed" in done.stderr
    assert "pip install 'aiocosid[etcd]'" in done.stderr
