"""What a ZooKeeper URL names, and under which path a text lies."""

from __future__ import annotations

import pytest

from aiocosid.errors import CorruptMachineStateError, InvalidArgumentError
from aiocosid.machine.cells import MachineRecord, NamespaceRecord
from aiocosid.stores._url import ZOOKEEPER, read_url
from aiocosid.stores.zookeeper import ZookeeperStore
from aiocosid.stores.zookeeper._backend import Cells
from aiocosid.stores.zookeeper.tree import (
    STORES_OWN,
    Node,
    name_of,
    node_of,
    own_node_of,
    path_of,
    text_of,
)

SECRET = "s3cr3t"  # noqa: S105 - to be looked for

ODD = (
    *("a", "a/b", "a//b", "/", "/a", "a/", ".", "..", "a/../b", "...", "a.b", "%", "%41", "%2F"),
    *("%252F", "a%", "a%zz", "\n", "\x7f", "\x85", "\ue000", "\ufff0", "😀", "\U0010ffff", "ä"),
    *("__counter", "x/__counter", "x/__itc_idx/y", "__revert", "a b", "命名", "\ufeff"),
)


def test_urls() -> None:
    """Hosts, chroot, credentials and the one option."""
    login = ("u@x", "p/:")
    for url, (named, path, user, timeout) in {
        "zookeeper://": ("localhost:2181", "", None, 10.0),
        "zookeeper://a,b:1": ("a:2181,b:1", "", None, 10.0),
        "ZooKeeper://[::1]:7/": ("[::1]:7", "", None, 10.0),
        "zookeeper://a/apps/ids": ("a:2181", "/apps/ids", None, 10.0),
        "zookeeper://u%40x:p%2F%3A@a": ("a:2181", "", login, 10.0),
        "zookeeper://a?session_timeout=2.5": ("a:2181", "", None, 2.5),
    }.items():
        found = read_url(url, ZOOKEEPER)
        hosts = ",".join(map(str, found.hosts))
        assert (hosts, found.path, found.login) == (named, path, user)
        assert found.options == {"session_timeout": timeout}
    assert f"u:{SECRET}" not in repr(ZookeeperStore.from_url(f"zookeeper://u:{SECRET}@a/x"))
    assert repr(ZookeeperStore.from_url("zookeeper://a/x")) == "<ZookeeperStore a:2181/x>"


def test_bad_urls() -> None:
    """Each is refused, and nothing of it is shown that may be secret."""
    for url in (
        *("redis://a", "zookeeper", f"u:{SECRET}@a", "zookeeper://a:0", "zookeeper://a:65536"),
        *(f"zookeeper://u:{SECRET}/x@a", f"zookeeper://{SECRET}@a", f"zookeeper://:{SECRET}@a"),
        *("zookeeper://a,,b", "zookeeper://a//x", "zookeeper://a/../x", "zookeeper://a/x/.."),
        *("zookeeper://a?session_timeout=0", "zookeeper://a?session_timeout=x"),
        *("zookeeper://a?session_timeout", f"zookeeper://a?password={SECRET}", "zookeeper://a b"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            ZookeeperStore.from_url(url)
        assert caught.value.argument == "url"
        assert SECRET not in str(caught.value)


def test_paths() -> None:
    """Each text has a path that a server takes, and is read from it; CosId's own stay."""
    plain = [text for text in ODD if "%" not in text]
    for name, texts in ((path_of, plain), (node_of, ODD)):
        made = {text: name(text) for text in texts}
        assert len(set(made.values())) == len(texts)
        for path in made.values():
            assert path.isprintable() or path == "\ufeff"
            assert all(part not in {"", ".", ".."} for part in path.split("/"))
    assert [text_of(path_of(text)) for text in plain] == plain
    assert [name_of(node_of(text)) for text in ODD] == list(ODD)
    for text in ("a", "a/b", "10.0.0.1:8080", "%41", "ns.a/b c", "a%"):
        assert path_of(text) == text
    assert "/" not in "".join(map(node_of, ODD))
    assert node_of("10.0.0.1:8080") == "10.0.0.1:8080"
    assert name_of("a%ff") == "a%ff", "what another system has written stays as it is"


def test_the_stores_own_nodes() -> None:
    """No namespace lies where the marker does, or another system's records."""
    for text in (*STORES_OWN, *ODD, "xclock", "marker2", "%63lock"):
        name = own_node_of(text)
        assert name not in STORES_OWN
        assert name_of(name, own_node_of) == text
    assert Cells("", "counts").space == "/aiocosid/%63ounts/space"


def test_damaged_notes() -> None:
    """Whatever lies there instead is told, and no guess is made."""
    record = MachineRecord("a", token="t").text()  # noqa: S106 - no secret
    space = NamespaceRecord("a", bits=2).text()
    cells = Cells("here", "ns")
    for data in (
        *("", "{", "[]", "{}", "1", '{"mark":1.5}', "[" * 100_000, "\ud800"),
        *(record.replace("false", "0"), record.replace('"a"', "1"), record.replace("-1", "-2")),
        *(record.replace("-1", "9007199254740992"), record.replace("-1", "true")),
        *(space.replace("2", "32"), space.replace("2", '"2"'), space.replace("2", "2.0")),
    ):
        cells.nodes["/x"] = Node(data.encode(errors="surrogatepass"), 0, 1, 1, 1, 0, 0)
        for kind in (MachineRecord, NamespaceRecord):
            with pytest.raises(CorruptMachineStateError, match="/x holds"):
                cells._cell(kind, "/x")  # type: ignore[type-var]  # one after the other


def test_names_of_curators_locks() -> None:
    """A counter there would go when Curator's lock does."""
    with pytest.raises(InvalidArgumentError, match="-locker"):
        ZookeeperStore.from_url("zookeeper://a").segment_distributor(name="a-locker")
    with pytest.raises(InvalidArgumentError, match="kazoo"):
        ZookeeperStore(object())
