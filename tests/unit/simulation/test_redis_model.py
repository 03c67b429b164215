"""The simulated Redis answers as real servers do, whatever it is asked."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from aiocosid.stores.redis._span import OPEN, TAKE
from tests.simulation._redis_commands import Keyspace, RefusedError, glob
from tests.simulation._redis_server import RedisServer

from ._sequences import OnServer, first_difference


@pytest.mark.integration
@pytest.mark.parametrize("start", ["valkey_factory", "redis_factory"])
def test_random_commands_are_answered_as_a_server_does(
    start: str, request: pytest.FixtureRequest
) -> None:
    """Ten thousand more are in tests/stress."""
    started = request.getfixturevalue(start)()
    with OnServer(started.host, started.port) as server:
        assert first_difference(range(200), [server]) is None


drawn = count(1)


def made() -> RedisServer:
    return RedisServer("redis", lambda: 1_700_000_000.25, lambda: f"{next(drawn):040x}")


def run(server: RedisServer, *words: str | int) -> Any:
    return server.execute([str(word).encode() for word in words])


def facts(server: RedisServer) -> dict[str, str]:
    text = run(server, "INFO", "server", "replication").decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def test_a_claim_is_one_of_one_server() -> None:
    """Two masters with one history count alike, and a call may come to both in one microsecond."""
    first, second = made(), made()
    second.follow(first)
    second.promote()  # and the first does not know yet
    both = (first, second)
    asked = [b"r", b"10", b"0", b"n" * 32, b"2500"]
    claims: list[Any] = [each.execute([b"EVAL", TAKE.text, b"1", b"k", *asked]) for each in both]
    opening = [b"r", claims[1][2], b"10", b"100", b"", b"0"]
    opened: list[Any] = [each.execute([b"EVAL", OPEN.text, b"1", b"k", *opening]) for each in both]
    assert [reply[0] == b"opened" for reply in opened] == [False, True]


def test_what_there_was_before_is_still_known() -> None:
    server = made()
    for _ in range(5):
        run(server, "INCRBY", "k", 10)
    run(server, "HSET", "h", "f", "v")
    run(server, "HSET", "h", "f", "w")
    run(server, "GET", "k")
    run(server, "DEL", "k")
    space = server.space
    assert space.offset == 8  # a look is no write
    assert space.behind(0).values == {b"h": {b"f": b"w"}}
    assert space.behind(1).values == {b"k": b"50", b"h": {b"f": b"w"}}
    assert space.behind(2).values == {b"k": b"50", b"h": {b"f": b"v"}}
    assert space.behind(3).behind(2).values == {b"k": b"30"}
    assert space.behind(99).values == {}
    assert space.behind(3).offset == 5


def test_a_script_is_one_write() -> None:
    server = made()
    run(server, "EVAL", "redis.call('SET', 'a', 1) redis.call('SET', 'b', 1)", 0)
    assert server.space.offset == 1
    assert server.space.behind(1).values == {}


def test_a_time_can_be_gone_back_to() -> None:
    space = Keyspace()
    for now in (1.0, 2.0, 3.0):
        space.put(b"k", b"%d" % now)
        space.commit(now)
    assert [space.as_of(when).values.get(b"k") for when in (0.5, 1.0, 2.5, 9.0)] == [
        None,
        b"1",
        b"2",
        b"3",
    ]


def test_identity_after_a_restart_and_a_promotion() -> None:
    """As Redis 7 has it; `run_id` alone does not tell who came back."""
    old, new = made(), made()
    run(old, "SET", "k", 1)
    before = facts(old)
    assert before["role"] == "master"
    new.follow(old)
    assert facts(new)["role"] == "slave"
    assert facts(new)["master_replid"] == before["master_replid"]
    assert facts(new)["run_id"] != before["run_id"]
    new.promote()
    assert facts(new)["master_replid2"] == before["master_replid"]
    assert facts(new)["master_replid"] != before["master_replid"]
    assert facts(new)["second_repl_offset"] == "2"
    old.follow(new)
    old.promote()
    assert facts(old)["run_id"] == before["run_id"]
    assert facts(old)["master_replid"] != before["master_replid"]
    assert facts(old)["master_replid2"] == facts(new)["master_replid"]
    old.start(old.space)
    assert facts(old)["run_id"] != before["run_id"]


def test_a_replica_refuses_to_write_also_from_scripts() -> None:
    server = made()
    server.follow(made())
    assert run(server, "GET", "k") is None
    for words in (("SET", "k", 1), ("EVAL", "return redis.call('HDEL', 'k', '')", 0)):
        with pytest.raises(RefusedError, match=r"^READONLY"):
            run(server, *words)
    assert run(server, "ROLE")[0] == b"slave"


def test_a_new_process_knows_no_scripts() -> None:
    server = made()
    digest = run(server, "SCRIPT", "LOAD", "return 7").decode()
    assert run(server, "EVALSHA", digest, 0) == 7
    server.start(Keyspace())
    assert run(server, "SCRIPT", "EXISTS", digest) == [0]
    with pytest.raises(RefusedError, match=r"^NOSCRIPT"):
        run(server, "EVALSHA", digest, 0)


def test_a_user_who_may_not() -> None:
    server = made()
    with pytest.raises(RefusedError, match=r"^NOPERM .*'info'"):
        server.execute([b"INFO"], denied={"info"})
    with pytest.raises(RefusedError, match=r"ACL failure"):
        server.execute([b"EVAL", b"return redis.call('INFO')", b"0"], denied={"info"})


def test_a_script_sees_the_clock_and_no_python() -> None:
    server = made()
    assert run(server, "TIME") == [b"1700000000", b"250000"]
    assert run(server, "EVAL", "return redis.call('TIME')[2]", 0) == b"250000"
    with pytest.raises(RefusedError, match=r"nonexistent global variable 'python'"):
        run(server, "EVAL", "return python.eval('1')", 0)
    with pytest.raises(RefusedError, match=r"readonly table"):
        run(server, "EVAL", "leak = 1", 0)


def test_patterns() -> None:
    pattern = glob(rb"cosid:{*}:it?_\[[a-c]")
    assert pattern.fullmatch(b"cosid:{n\ns}:itc_[b")
    assert not pattern.fullmatch(b"cosid:{ns}:itc_[d")
