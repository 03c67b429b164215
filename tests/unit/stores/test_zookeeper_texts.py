"""What a ZooKeeper URL names, and under which path a text lies."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiocosid.errors import CorruptMachineStateError, InvalidArgumentError
from aiocosid.stores.zookeeper import ZookeeperIdSegmentDistributor, ZookeeperStore
from aiocosid.stores.zookeeper._machine_texts import Marker, Note
from aiocosid.stores.zookeeper._nodes import Node
from aiocosid.stores.zookeeper._paths import name_of, node_of, path_of, text_of
from aiocosid.stores.zookeeper._url import Target

SECRET = "s3cr3t"  # noqa: S105 - to be looked for

ODD = (
    *("a", "a/b", "a//b", "/", "/a", "a/", ".", "..", "a/../b", "...", "a.b", "%", "%41", "%2F"),
    *("%252F", "a%", "a%zz", "\n", "\x7f", "\x85", "\ue000", "\ufff0", "😀", "\U0010ffff", "ä"),
    *("__counter", "x/__counter", "x/__itc_idx/y", "__revert", "a b", "命名", "\ufeff"),
)


def test_urls() -> None:
    """Hosts, chroot, credentials and the one option."""
    for url, target in {
        "zookeeper://": Target(("localhost:2181",)),
        "zookeeper://a,b:1": Target(("a:2181", "b:1")),
        "ZooKeeper://[::1]:7/": Target(("[::1]:7",)),
        "zookeeper://a/apps/ids": Target(("a:2181",), "/apps/ids"),
        "zookeeper://u%40x:p%2F%3A@a": Target(("a:2181",), login="u@x:p/:"),
        "zookeeper://a?session_timeout=2.5": Target(("a:2181",), session_timeout=2.5),
    }.items():
        assert Target.of(url) == target
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
            Target.of(url)
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


def test_damaged_notes() -> None:
    """Whatever lies there instead is told, and no guess is made."""
    for data in (
        *(b"", b"{", b"[]", b"{}", b"1", b"\xff", b'{"mark":1.5}'),
        b'{"holder":"a","mark":true,"seen":1,"stable":false,"token":""}',
        b'{"holder":"a","mark":9007199254740992,"seen":1,"stable":false,"token":""}',
        b'{"holder":1,"mark":1,"seen":1,"stable":false,"token":""}',
        b'{"bits":32,"claims":{},"gaps":[],"guard":0,"identity":"","since":null}',
        b'{"bits":"2","claims":{},"gaps":[],"guard":0,"identity":"","since":null}',
        b'{"bits":2,"claims":{"x":[1,"",""]},"gaps":[],"guard":0,"identity":"","since":null}',
        b'{"bits":2,"claims":{"1":[1,""]},"gaps":[],"guard":0,"identity":"","since":null}',
        b'{"bits":2,"claims":{},"gaps":[1],"guard":0,"identity":"","since":null}',
        b'{"bits":2,"claims":[],"gaps":[],"guard":0,"identity":"","since":null}',
    ):
        node = Node(data, 0, 1, 1, 1, 0, 0)
        for kind in (Note, Marker):
            with pytest.raises(CorruptMachineStateError, match="/x holds"):
                kind.of("/x", node)


def test_numbers_that_were_left_out() -> None:
    """A run is cut where a number of it is handed out."""
    marker = Marker()
    marker.leave_out(3, 2)
    marker.leave_out(0, 4)
    marker.leave_out(6, 6)
    for machine_id, left in ((2, [(0, 1), (3, 4), (6, 6)]), (6, [(0, 1), (3, 4)]), (9, None)):
        before = marker.gaps
        marker.fill(machine_id)
        assert marker.gaps == (before if left is None else left)


def test_names_of_curators_locks() -> None:
    """A counter there would go when Curator's lock does."""
    with pytest.raises(InvalidArgumentError, match="-locker"):
        ZookeeperIdSegmentDistributor(object(), name="a-locker")
    with pytest.raises(InvalidArgumentError, match="kazoo"):
        ZookeeperIdSegmentDistributor(object(), name="a")


def test_without_the_driver() -> None:
    """The extra is named."""
    code = (
        "import sys; sys.modules['kazoo'] = None\n"
        "from aiocosid import open_store; open_store('zookeeper://a')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert "MissingExtraError: kazoo is not installed" in done.stderr
    assert "aiocosid[zookeeper]" in done.stderr
