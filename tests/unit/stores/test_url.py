"""How the URLs of stores are read, and what is said of a wrong one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.stores._url import (
    AIOCOSID,
    ETCD,
    HTTP,
    MYSQL,
    NATS,
    POSTGRES,
    REDIS,
    ZOOKEEPER,
    Host,
    StoreUrl,
    UrlSpec,
    read_url,
)

SECRET: Final = "horse"  # noqa: S105 - to be searched for in errors

SPECS: Final[dict[str, tuple[UrlSpec, ...]]] = {
    "aiocosid": AIOCOSID,
    "etcd": (ETCD,),
    "http": (HTTP,),
    "mysql": (MYSQL,),
    "postgres": (POSTGRES,),
    "redis": REDIS,
    "zookeeper": (ZOOKEEPER,),
}

READ: Final[dict[str, tuple[str, bool, str, tuple[str, str] | None, str, dict[str, Any]]]] = {
    # kind, TLS, hosts, login, path, some of the options
    "aiocosid+http://h": ("aiocosid", False, "h:8688", None, "", {"timeout": 1.5, "token": None}),
    "aiocosid+https://t%40@a,[::1]:1/ids?timeout=3": (
        *("aiocosid", True, "a:8688,[::1]:1", ("t@", ""), "/ids"),
        {"timeout": 3.0, "ssl_ca_certs": None},
    ),
    "aiocosid+unix:///run/i%20d.sock?token=t": (
        *("aiocosid", False, "", None, "/run/i d.sock"),
        {"token": "t"},
    ),
    "etcd://": ("etcd", False, "localhost:2379", None, "/cosid", {"timeout": 1.5}),
    "ETCD://h:1/": ("etcd", False, "h:1", None, "/cosid", {"timeout": 1.5}),
    "etcds://h:1,i,[::1]:3": ("etcd", True, "h:1,i:2379,[::1]:3", None, "/cosid", {}),
    "etcd://h/a/b/?timeout=0.5": ("etcd", False, "h:2379", None, "/a/b", {"timeout": 0.5}),
    "etcd://u:p%40%2F@h/a%20b": ("etcd", False, "h:2379", ("u", "p@/"), "/a b", {}),
    "etcd://u@x:p@h": ("etcd", False, "h:2379", ("u@x", "p"), "/cosid", {}),
    "zookeeper://a,b:1/x/y": ("zookeeper", False, "a:2181,b:1", None, "/x/y", {}),
    "zookeeper://a?session_timeout=2.5": (
        *("zookeeper", False, "a:2181", None, ""),
        {"session_timeout": 2.5},
    ),
    "http://host:8688": ("http", False, "host:8688", None, "", {}),
    "cosid+https://me:s%40@[::1]/ids/": ("http", True, "[::1]", ("me", "s@"), "/ids", {}),
    "cosid+http://a,b:1/ids": ("http", False, "a,b:1", None, "/ids", {}),
    "http://me@h": ("http", False, "h", ("me", ""), "", {}),
    "mysql:///db": ("mysql", False, "localhost:3306", None, "/db", {"database": "db"}),
    "mariadb://u%40:p@h:1/d%2Db?durability=refuse&ssl-mode=verify_ca": (
        *("mysql", False, "h:1", ("u@", "p"), "/d-b"),
        {"durability": "refuse", "ssl-mode": "VERIFY_CA", "ssl-ca": None},
    ),
    "postgresql://me:p%23@a,[::1]:5/shop?sslmode=require": (
        *("postgres", False, "a:5432,[::1]:5", ("me", "p#"), "/shop"),
        {"sslmode": "require", "durability": "warn"},
    ),
    "redis://h": ("redis", False, "h:6379", None, "", {"protocol": 2, "socket_timeout": 1.5}),
    "REDIS://h:1/2": ("redis", False, "h:1", None, "/2", {"db": 2}),
    "rediss://h": ("redis", True, "h:6379", None, "", {"ssl_ca_certs": None}),
    "redis://[::1]:7": ("redis", False, "[::1]:7", None, "", {}),
    "redis://u%40x:p%2F%3A@h": ("redis", False, "h:6379", ("u@x", "p/:"), "", {}),
    "rediss+cluster://a/0": ("redis", True, "a:6379", None, "/0", {"db": 0}),
    "redis://": ("redis", False, "localhost:6379", None, "", {"db": 0, "replicas": 0}),
    "redis://:6380/2": ("redis", False, "localhost:6380", None, "/2", {"db": 2}),
    "valkeys://:p@h/?db=3": ("redis", True, "h:6379", ("", "p"), "", {"db": 3}),
    "redis://h/1?db=3": ("redis", False, "h:6379", None, "/1", {"db": 3}),
    "unix://u@/a%20b/s?db=1": ("redis", False, "", ("u", ""), "/a b/s", {"db": 1}),
    "redis+cluster://a:1,b": ("redis", False, "a:1,b:6379", None, "", {"db": 0}),
    "rediss+sentinel://a,b:5/ids/3?sentinel_password=q&ssl_check_hostname=no": (
        *("redis", True, "a:26379,b:5", None, "/ids/3"),
        {"db": 3, "service": "ids", "sentinel_password": "q", "ssl_check_hostname": False},
    ),
}


@pytest.mark.parametrize("url", READ)
def test_what_a_url_names(url: str) -> None:
    """Servers, login, path, and all options with their defaults."""
    kind, tls, hosts, login, path, options = READ[url]
    found = read_url(url, *SPECS[kind])
    assert found.scheme == url.partition(":")[0].lower()
    assert (found.tls, found.login, found.path) == (tls, login, path)
    assert str(found) == f"{hosts}{path}"
    assert options.items() <= found.options.items()


def test_hosts_are_apart() -> None:
    """A name without brackets, and its port."""
    found = read_url("etcd://[::1]:3,h", ETCD)
    assert found == StoreUrl(
        "etcd",
        tls=False,
        hosts=(Host("::1", 3), Host("h", 2379)),
        path="/cosid",
        options={"timeout": 1.5},
    )


def test_files(tmp_path: Path) -> None:
    """They have to be there, and are options of TLS alone; those that belong together are."""
    for name in ("ca", "crt", "key"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe")  # nothing ever writes to it
    options = f"ssl_ca_certs={tmp_path}/ca&ssl_certfile={tmp_path}/crt&ssl_keyfile={tmp_path}/key"
    found = read_url(f"etcds://h?{options}", ETCD).options
    assert [found[f"ssl_{name}"] for name in ("ca_certs", "certfile", "keyfile")] == [
        f"{tmp_path}/{name}" for name in ("ca", "crt", "key")
    ]
    for url, expected in {
        f"etcd://h?{options}": ": its options are timeout$",
        f"etcds://h?ssl_certfile={tmp_path}/crt": "all of ssl_certfile, ssl_keyfile, or none",
        "etcds://h?ssl_ca_certs=/not/there": "a file that can be read for ssl_ca_certs",
        f"etcds://h?ssl_ca_certs={tmp_path}": "a file that can be read",
        f"etcds://h?ssl_ca_certs={tmp_path}/pipe": "a file that can be read",
        "etcds://h?ssl_ca_certs=%00": "a file that can be read",
    }.items():
        with pytest.raises(InvalidArgumentError, match=expected):
            read_url(url, ETCD)
    with pytest.raises(InvalidArgumentError, match="a readable file"):
        read_url(f"nats://h?nkey={tmp_path}/pipe", NATS)


WRONG: Final = {
    "aiocosid": (
        *("", "aiocosid:", f"aiocosid://{SECRET}@h", "aiocosid+http://", "aiocosid+unix://"),
        *(f"aiocosid+http://{SECRET}@h?timeout=0", f"aiocosid+unix://{SECRET}@host/path"),
        *(f"aiocosid+http://h?{SECRET}", f"aiocosid+http://h?token={SECRET}&ssl_ca_certs=x"),
    ),
    "etcd": (
        *("", "etcd", "etcd:h", f"http://u:{SECRET}@h", f"etcd://u:{SECRET}/@h"),
        *(f"etcd://u:{SECRET}@h:x", f"etcd://u:{SECRET}@h:0", f"etcd://u:{SECRET}@h:65536"),
        *(f"etcd://u:{SECRET}@h,", f"etcd://u:{SECRET}@,h", f"etcd://{SECRET}@h"),
        *(f"etcd://:{SECRET}@h", f"etcd://u:{SECRET}?@h", f"etcd://u:{SECRET}@h?x"),
        *(f"etcd://u:{SECRET}@h?timeout={each}" for each in ("", "0", "-1", "inf", "nan", "x")),
        *(f"etcd://u:{SECRET}@h?{each}" for each in ("timeout", "more=1", "ssl_ca_certs=x")),
        *(f"etcd://u:{SECRET}@h/%00", f"{SECRET} etcd://h", f"etcd://a{SECRET}#@h"),
    ),
    "http": (
        *("", "host", f"ftp://u:{SECRET}@host", "http://", "http:///path", "http://host:x"),
        *("http://[::1", f"http://host?a={SECRET}", f"http://host#{SECRET}"),
        *(f"redis://{SECRET}@host", "http://host:99999"),
    ),
    "mysql": (
        *(f"mysql:///{SECRET}#zzz", f"mysql://me:{SECRET}#zzz@host/db"),
        *(f"mysql://me:{SECRET}/zzz@host/db", f"mysql://me:{SECRET}?zzz@host/db"),
        *(f"mysql://me:{SECRET}[zzz@host/db", f"mysql://me:{SECRET}@host:port/db"),
        *(f"mysql://me:{SECRET}@host:543210/db", f"mysql://me:{SECRET}@host/zzz/{SECRET}"),
        *(f"mysql://me:{SECRET}@host/", f"mysql://me:{SECRET}@host", f"mysql:{SECRET}/zzz"),
        *(f"redis://me:{SECRET}@host/db", None, f"mysql://me:{SECRET}@a,b/db"),
        *("mysql://h/d?charset=utf8", "mysql://h/d?durability=warn&durability=warn"),
        *("mysql://h/d?durability=maybe", "mysql://h/d?ssl-ca=/no/such.pem"),
    ),
    "postgres": (
        *(f"postgresql:///{SECRET}#zzz", f"postgresql://me:1?{SECRET}@host/db"),
        *(f"postgresql://me:1/{SECRET}@host/db", f"postgresql://me:{SECRET}[zzz@host/db"),
        *(f"postgresql://me:{SECRET}@host:5432,host:x/db", f"me:{SECRET}@host/db"),
        *(f"postgresql:/{SECRET}/zzz", f"postgresql:host/{SECRET}//zzz"),
        *(f"postgresql://me:{SECRET}@host,/zzz", f"postgresql://me:{SECRET}@host,:5432/zzz"),
        "postgresql://host/db?durability=perhaps",
    ),
    "redis": (
        *("", "redis", "redis:", f"http://{SECRET}@h", f"redis://u:{SECRET}/x@h"),
        *(f"redis://u:{SECRET}@@h:x", f"redis://u:x?{SECRET}=1@h", f"redis://u:{SECRET}@h:0"),
        *(f"redis://u:{SECRET}@a,b", f"redis://u:{SECRET}@h/one", f"redis://u:{SECRET}@h/-1"),
        *(f"redis://h?password={SECRET}&unheard=1", f"redis://h?{SECRET}"),
        *(f"redis://h?password={SECRET}&ssl_ca_certs=/x", f"unix://u:{SECRET}@"),
        *(f"rediss://h?password={SECRET}&{each}" for each in ("ssl_ca_certs=/x", "protocol=4")),
        *(f"rediss://h?password={SECRET}&ssl_cert_reqs={each}" for each in ("", "perhaps")),
        *(f"redis://h?password={SECRET}&{each}=0" for each in ("socket_timeout", "protocol")),
        *(f"redis://h?password={SECRET}&{each}" for each in ("max_connections=0", "db=1_0x")),
        *(f"redis://h?sentinel_password={SECRET}", f"unix://u:{SECRET}@host/s"),
        *(f"redis+cluster://u:{SECRET}@h/1", f"redis+cluster://u:{SECRET}@h:1,"),
        *(f"redis+cluster://u:{SECRET}@,h", f"redis+cluster://u:{SECRET}@h,:1"),
        *(f"redis+sentinel://u:{SECRET}@h,,i/ids", f"redis+sentinel://u:{SECRET}@h"),
        *(f"redis+sentinel://u:{SECRET}@h/ids/x", f"redis://h?replicas=1001&password={SECRET}"),
    ),
    "zookeeper": (
        *("redis://a", "zookeeper", f"u:{SECRET}@a", "zookeeper://a:0", "zookeeper://a:65536"),
        *(f"zookeeper://u:{SECRET}/x@a", f"zookeeper://{SECRET}@a", f"zookeeper://:{SECRET}@a"),
        *("zookeeper://a,,b", "zookeeper://a//x", "zookeeper://a/../x", "zookeeper://a/x/.."),
        *(f"zookeeper://a/x%0A{SECRET}", f"zookeeper://u:{SECRET}?@a", "zookeeper://a?x"),
        "zookeeper://a?session_timeout=2147484",
    ),
}


@pytest.mark.parametrize(("kind", "url"), [(kind, url) for kind in WRONG for url in WRONG[kind]])
def test_a_wrong_url_is_refused_and_not_shown(kind: str, url: Any) -> None:
    """What stands in it may be a password, in whatever place; nor does Python's own error tell."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_url(url, *SPECS[kind])
    assert caught.value.argument == "url"
    shown: BaseException | None = caught.value
    while shown is not None:
        assert SECRET not in f"{shown} {shown!r}"
        shown = None if shown.__suppress_context__ else shown.__context__


def test_what_is_expected_instead() -> None:
    """The schemes, the form, the options, or the values of one."""
    for url, kind, expected in (
        ("ftp://h", "redis", "url 'ftp:...' must .*redis://, valkey://, .*, rediss\\+sentinel://"),
        ("h", "etcd", r"url must begin with .*etcd://, etcds://"),
        ("mysql://h", "mysql", "like mysql://user:password@host:port/database.*percent-encoded"),
        ("mysql://u:p/w@h/d", "mysql", "^url 'mysql:...' must have user, password.*'/' is %2F"),
        ("redis://a,b", "redis", r"for several hosts take redis\+cluster:// or redis\+sentinel://"),
        (
            "redis://h?sokcet_timeout=1",
            "redis",
            "the option 'sokcet_timeout': its options are .*, socket",
        ),
        ("mysql://h/d?ssl-mode=PREFERRED", "mysql", "DISABLED, REQUIRED, VERIFY_CA or VERIFY_ID"),
        ("mysql://h/d?ssl-ca=/x&ssl-ca=/x", "mysql", "can be read for ssl-ca"),
        ("redis://h?db=1&db=1", "redis", "each of the options db.* at most once"),
        ("redis://h?protocol=4", "redis", "an integer from 2 to 3 for protocol"),
        ("redis://h?db=x", "redis", "an integer from 0 for db"),
        ("rediss://h?ssl_check_hostname=maybe", "redis", "true or false for ssl_check_hostname"),
        ("etcd://u@h", "etcd", "must have user:password, or neither"),
        ("http://h?x=1", "http", "its options are none"),
        ("zookeeper://h?session_timeout=x", "zookeeper", "a number of seconds for session_timeout"),
    ):
        with pytest.raises(InvalidArgumentError, match=expected):
            read_url(url, *SPECS[kind])


def test_the_password_is_not_shown() -> None:
    """Nor is what stands in the options."""
    found = read_url(f"redis://u:{SECRET}@h?password={SECRET}", *REDIS)
    assert SECRET not in f"{found!r} {found}"


@pytest.mark.parametrize("spec", [spec for specs in SPECS.values() for spec in specs])
def test_each_option_is_described(spec: UrlSpec) -> None:
    """And its default is one of those that it might have."""
    for option in (*spec.options.values(), *spec.tls_options.values()):
        assert option.doc
        assert option.default is None or option.read(str(option.default)) == option.default
