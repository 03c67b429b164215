"""Each row of the tables and lists that promise something has a test.

The evidence names the tests of the guarantees, store by store.  Those of the other tables have them
here, with blanks between several: a row that is new, or says something else, needs its test.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from ._blocks import ROOT
from .test_facts import has_test

LIMITS: Final = "tests/unit/segment/test_limits.py"
LIVES: Final = "tests/integration/test_lives.py"
LEASE: Final = "tests/unit/machine/test_lease.py"
QUARANTINE: Final = "tests/unit/machine/test_quarantine.py"
RESTART: Final = "tests/unit/machine/test_restart.py"
OFFLINE: Final = "tests/unit/machine/test_offline.py"
REDIS: Final = "tests/integration/test_redis_cancellation.py"
VOUCHING: Final = "tests/integration/test_vouching.py"
CHAOS: Final = "tests/stress/test_chaos.py"
OF_MACHINES: Final = "aiocosid/testing/_machine_contract.py"
OF_COUNTERS: Final = "aiocosid/testing/_distributor_contract.py"
OF_GENERATORS: Final = "aiocosid/testing/_generator_contract.py"
SEGMENT: Final = "tests/unit/segment/test_segment_id.py"
ENDURANCE: Final = "tests/unit/segment/test_endurance.py"
SHOWS: Final = "tests/integration/test_server_shows.py::test_a_hung_store"
KEPT: Final = "tests/contracts/test_strict.py::test_it_is_kept_or_refused"
FIGURES: Final = "tests/docs/test_figures.py::test_each_fact_is_on_its_page"
ALONE: Final = (
    "tests/unit/snowflake/test_snowflake_id.py::test_what_is_unique_alone_is_not_unique_together"
)
UNDETECTED: Final = ""  # the row says that ids repeat, and why this library cannot see it

CLAIMS: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("docs/howto/do-i-need-this.md", "How they differ"): {
        "an id is": f"{OF_COUNTERS}::test_a_counter_begins_with_its_first_step",
        "order": f"{OF_GENERATORS}::test_ids_are_positive_and_rising",
        "callers that wait for the store": "tests/unit/segment/test_distance.py"
        "::test_a_consumer_with_time_between_ids_never_waits",
        "the store is down": "tests/unit/segment/test_endurance.py"
        "::test_an_outage_of_a_minute_is_not_noticed",
        "a caller is cancelled": f"{OF_GENERATORS}::test_a_storm_of_cancelled_callers",
        "the process forks": f"{LIVES}::test_a_forked_child",
        "the store loses writes": f"{OF_COUNTERS}::test_a_counter_that_went_back_is_noticed",
        "n ids at once": f"{OF_GENERATORS}::test_next_ids_returns_exactly_n",
    },
    ("README.md", "What is promised"): {
        "No id of a counter": f"{CHAOS}::test_nothing_comes_twice",
        "Ids of one generator": f"{OF_GENERATORS}::test_two_generators_are_disjoint",
        "Gaps are allowed": "tests/docs/test_facts.py"
        "::test_numbers_with_a_step_of_1_have_a_gap_for_each_insert_that_fails",
        "The event loop": f"{OF_GENERATORS}::test_a_greedy_consumer_lets_others_run",
        "If a generator sees": f"{OF_COUNTERS}::test_a_counter_that_went_back_is_noticed",
    },
    ("docs/howto/which-generator.md", "Compare them"): {
        "unique": ALONE,
        "order": "tests/unit/segment/test_strict.py::test_a_step_without_strict_is_out_of_order",
        "ids a second": FIGURES,
        "p99.99": FIGURES,
        "depends on": "tests/unit/segment/test_segment_id.py"
        "::test_it_fetches_when_opened_and_when_used_up",
        "while the store is down": f"{LEASE}::test_how_long_an_outage_is_unnoticed",
        "adapts to load": "tests/unit/segment/test_distance.py"
        "::test_one_doubling_for_each_starvation",
        "bytes": FIGURES,
    },
    ("docs/howto/store-is-down.md", "One timeline"): {
        "0 | gapless": "tests/integration/test_gapless.py"
        "::test_takes_numbers_that_a_rollback_gives_back",
        "0 | `strict=True`": f"{SEGMENT}::test_with_a_step_of_1_nothing_is_fetched_ahead",
        "0 | segment": f"{SEGMENT}::test_it_fetches_when_opened_and_when_used_up",
        "0 to 2 | sharded": "tests/unit/snowflake/test_sharded_outage.py::test_an_error_at_once",
        "0 to 5 | counters": f"{ENDURANCE}"
        "::test_callers_of_a_store_that_is_down_fail_with_its_next_call",
        "0 to 2 | id service": SHOWS,
        "2 to 3 | id service": SHOWS,
        "5 | segment": f"{ENDURANCE}::test_without_that_they_wait",
        "5 to 15 | Snowflake": f"{LEASE}::test_how_long_an_outage_is_unnoticed",
        "30 to 90 | Snowflake": f"{LEASE}::test_how_long_an_outage_is_unnoticed",
        "32 to 63 | chain": "tests/unit/integrations/test_asgi.py"
        "::test_an_outage_that_the_reserve_outlasts_is_not_degraded",
        "62 to 93 | chain": f"{ENDURANCE}::test_an_outage_of_a_minute_is_not_noticed",
        "300 | Snowflake": f"{OF_MACHINES}::test_a_silent_one_is_recycled",
    },
    ("docs/explanation/guarantees.md", "Never a duplicate"): {
        "the process crashes": f"{CHAOS}::test_nothing_comes_twice",
        "the process is paused": f"{CHAOS}::test_nothing_comes_twice",
        "the clock is set": "tests/unit/segment/test_ttl.py::test_the_wall_clock_does_not_count",
        "a caller is [cancelled]": "tests/unit/segment/test_waiting.py"
        "::test_an_id_for_a_caller_that_was_cancelled_in_that_turn_is_a_gap "
        f"{REDIS}::test_reply_lost_after_the_effect {REDIS}::test_drivers_default_sends_again "
        f"{REDIS}::test_generator_tears_a_silent_call_and_goes_on",
        "the process forks": f"{LIVES}::test_a_forked_child",
        "two event loops, or two threads": "tests/unit/segment/test_threads.py"
        "::test_racing_threads_never_share_an_id",
        "the network separates": "tests/unit/segment/test_endurance.py"
        "::test_an_outage_of_a_minute_is_not_noticed",
        "the counter reaches the end": f"{OF_COUNTERS}::test_int64_is_the_end",
    },
    ("docs/explanation/guarantees.md", "Order"): {
        "Ids of **one generator**": "tests/unit/segment/test_waiting.py"
        "::test_first_come_first_served",
        "`next_ids(n)`": "tests/unit/segment/test_waiting.py"
        "::test_ids_are_rising_through_waits_and_batches",
        "Ids of **different generators**": f"{OF_GENERATORS}::test_two_generators_are_disjoint",
        "`SegmentId` with `step=1`": "tests/unit/segment/test_segment_id.py"
        "::test_with_a_step_of_1_processes_take_turns",
        "`SegmentId` with `strict=True`": KEPT,
        "After a restart": f"{OF_COUNTERS}::test_distributors_of_one_name_share_the_counter",
    },
    ("docs/reference/generators.md", "Which stores keep it"): {
        "memory": KEPT,
        "SQLite, PostgreSQL": KEPT,
        "etcd, ZooKeeper": KEPT,
        "NATS": KEPT,
        "Redis and Valkey": KEPT,
        "tiered": KEPT,
        "striped": "tests/unit/stores/test_striped.py::test_it_is_refused_for_strict_order",
        "a CosId proxy": KEPT,
        "a distributor of your own": "tests/unit/segment/test_strict.py"
        "::test_a_store_that_does_not_declare_itself_is_refused",
    },
    ("docs/explanation/leases.md", "The life of a lease"): {
        "The first generator": f"{OF_MACHINES}::test_new_ids_come_before_expired_ones",
        "The generator writes": f"{LEASE}::test_it_takes_an_id_guards_it_and_gives_it_back",
        "Every `interval`": f"{LEASE}::test_ten_generators_have_one_lease",
        "A clean close": f"{LEASE}::test_it_takes_an_id_guards_it_and_gives_it_back",
    },
    ("docs/explanation/leases.md", "The two ends"): {
        "the fence": f"{LEASE}::test_past_the_mark_it_is_silent_until_the_store_answers",
        "the lease's time": f"{LEASE}::test_past_the_lease_it_is_silent_by_the_monotonic_clock",
    },
    ("docs/explanation/leases.md", "After a crash"): {
        "an instance without a name": f"{OF_MACHINES}::test_a_silent_one_is_recycled",
        "an instance with a given name": f"{LEASE}::test_crash_and_restart_after_a_step_back",
        "a stable instance |": f"{RESTART}::test_without_a_proof_it_waits_for_the_mark",
        "a stable instance with": f"{RESTART}::test_after_a_crash_it_waits_for_a_second",
        "the same with `offline`": f"{OFFLINE}::test_after_a_boot_it_waits_for_the_disk_s_mark",
        "any instance": f"{LEASE}::test_where_there_is_no_choice_the_mark_is_waited_for",
        "a machine id chosen by hand": "tests/unit/machine/test_manual.py"
        "::test_the_mark_outlives_a_crash",
    },
    ("docs/explanation/leases.md", "Without the store"): {
        "the store fails": f"{OFFLINE}::test_it_goes_on_up_to_the_confirmed_mark",
        "a start while the store": f"{OFFLINE}::test_a_silent_store_is_not_waited_for",
        "the store is back": f"{OFFLINE}::test_the_store_is_asked_first_when_it_is_back",
        "a start of the same instance": f"{OFFLINE}::test_another_state_dir_takes_nothing",
        "a start while another": f"{OFFLINE}::test_beside_a_living_process_it_takes_nothing",
        "the disk fails": f"{OFFLINE}::test_a_disk_that_fails_stops_it",
    },
    ("docs/reference/schema.md", "What identifies a store"): {
        "Redis, Valkey": "tests/integration/test_redis_quarantine.py"
        "::test_failed_over_to_a_replica_that_lags_and_back",
        "PostgreSQL": "tests/integration/test_sql_machine_quarantine.py::test_a_promoted_standby",
        "MySQL, MariaDB": "tests/integration/test_mysql.py::test_a_rebuilt_table_is_another_store",
        "etcd": "tests/integration/test_etcd_machine.py::test_a_term_that_fell",
        "ZooKeeper": "tests/integration/test_zookeeper_cells.py::test_what_java_has_issued_anew",
        "NATS": "tests/integration/test_nats.py::test_initialised_anew_under_an_owner",
        "SQLite": "tests/integration/test_sql_machine_quarantine.py::test_a_copy_is_another_store",
        "memory": f"{QUARANTINE}::test_who_runs_keeps_its_id_and_who_comes_waits",
    },
    ("docs/explanation/leases.md", "What is guaranteed when"): {
        "a process crashes": f"{CHAOS}::test_nothing_comes_twice "
        "tests/integration/test_snowflake_clock.py"
        "::test_a_stopped_owner_stays_silent_until_it_has_an_id_again "
        "tests/integration/test_machine_outages.py"
        "::test_the_owner_is_silent_before_its_heir_speaks",
        "the wall clock": "tests/integration/test_snowflake_clock.py"
        "::test_a_wall_clock_that_jumps_back_and_forth",
        "a renewal or a release": "tests/unit/machine/test_rules_explored.py"
        "::test_no_history_repeats_an_id "
        "tests/unit/machine/test_shared_lease.py"
        "::test_a_return_that_arrives_late_takes_nothing_from_the_next_life",
        "a fork": "tests/unit/machine/test_lease_fork.py"
        "::test_the_parents_lease_gives_the_child_nothing",
        "a clean close": "tests/unit/snowflake/test_sequencer.py::test_the_time_of_the_last_id",
        "two processes have the same instance id": "tests/integration/test_machine_twins.py"
        "::test_at_the_same_time",
        "two processes have the same manual": "tests/integration/test_machine_lock.py"
        "::test_a_second_process_is_refused",
        "the same on two hosts": ALONE,
        "the state directory": UNDETECTED,
        "the store loses confirmed writes": f"{QUARANTINE}"
        "::test_who_runs_keeps_its_id_and_who_comes_waits "
        f"{VOUCHING}::test_dropped_tables_are_not_made_again",
        "processes of one namespace that differ": "aiocosid/testing/_machine_quarantine.py"
        "::test_the_longest_lease_counts",
        "a process with another width": f"{OF_MACHINES}::test_a_namespace_has_one_width",
        "two generators with different names": ALONE,
        "two namespaces, or two stores": ALONE,
        "layouts that differ": "tests/unit/snowflake/test_clearance.py::test_it_is_right",
    },
}


def rows(page: str, heading: str) -> list[str]:
    """The rows of the first table below a heading, or else the items of its lists."""
    text = (ROOT / page).read_text("utf-8")
    below = re.split(
        rf"^#+ {re.escape(heading)}(?: \{{.*)?$", text, maxsplit=1, flags=re.MULTILINE
    )[1]
    section = re.split(r"\n#+ ", below, maxsplit=1)[0]
    table = section.partition("\n|---")[2].partition("\n\n")[0]
    if table:
        return re.findall(r"^\| (.+)$", table, re.MULTILINE)
    return re.findall(r"^(?:\*|\d\.) (.+)$", section, re.MULTILINE)


@pytest.mark.parametrize(("page", "heading"), CLAIMS)
def test_each_row_has_its_test(page: str, heading: str) -> None:
    found, claims = rows(page, heading), CLAIMS[page, heading]
    assert len(found) == len(claims)
    assert [
        row for row, begins in zip(found, claims, strict=True) if not row.startswith(begins)
    ] == []


@pytest.mark.parametrize(("page", "heading"), CLAIMS)
def test_only_a_row_that_repeats_has_none(page: str, heading: str) -> None:
    tests = CLAIMS[page, heading].values()
    found = [row for row, test in zip(rows(page, heading), tests, strict=True) if not test]
    assert [row for row in found if "| **yes**" not in row and "| **possible**" not in row] == []


def test_the_tests_are_there() -> None:
    named = {
        test for claims in CLAIMS.values() for tests in claims.values() for test in tests.split()
    }
    places = [test.split("::") for test in named]
    assert [test for test in places if not has_test(ROOT / test[0], test[1])] == []


def test_each_row_of_the_stores_has_its_tests() -> None:
    """The rows of one store with other settings belong to its first row; its row names a test."""
    folder = ROOT / "docs" / "explanation"
    guarantees = (folder / "guarantees.md").read_text("utf-8")
    promised = set(re.findall(r'<span id="((?:counters|machines)-[\w-]+)">', guarantees))
    shown = (folder / "evidence.md").read_text("utf-8").partition("\n## Which test shows it\n")[2]
    lines = [line for line in shown.splitlines() if "`tests/" in line or "`make chaos" in line]
    tested = {place for line in lines for place in re.findall(r"guarantees\.md#([\w-]+)\)", line)}
    assert promised - tested == {"machines-split"}  # a case that is not noticed
    assert tested <= promised
    assert len(promised) > 25
