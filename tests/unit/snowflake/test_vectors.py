"""CosId's own layouts and texts, as its Java classes answered (tests/vectors).

Where Java's behaviour is a defect ours differs, and the test says in what:

* an id that is negative: Java reads it, ours refuses;
* a local time that occurs twice: Java writes one text for two ids and reads the earlier; ours
  refuses both ways, and `fold` reads Java's;
* a local time that is skipped, or 30 February: Java moves it; ours refuses;
* spaces, doubled hyphens, ``+1``, full-width digits, hour 24 in a text: Java takes them;
* a field above its bits in a text of CosIdGenerator: Java writes and reads it;
* a sequence wider than 31 bits: Java prints it negative;
* 2^53-1: Java calls it unsafe in JavaScript, and -1 safe.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aiocosid.errors import InvalidArgumentError, InvalidIdError
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    JAVASCRIPT_MAX_SAFE_ID,
    JAVASCRIPT_SAFE_MS,
    JAVASCRIPT_SAFE_S,
    CosIdFriendlyText,
    CosIdRadixText,
    CosIdState,
    CosIdText,
    FriendlyText,
    SnowflakeLayout,
)

from .._vectors import load, unread

GENERATORS = {  # what a generator does; its tests read these
    "snowflake.default_sequence_reset_threshold",
    "snowflake.generate_sequence",
    "cosid.generate_sequence",
    "cosid.generate_long",
    "cosid.id_converter",
}


def test_every_operation_has_its_test() -> None:
    assert unread(__file__, "snowflake", "cosid_generator") == []


# Layouts.

CLASSES = {
    "MillisecondSnowflakeId": COSID_MS,
    "SecondSnowflakeId": COSID_S,
    "SafeJavaScriptSnowflakeId.ofMillisecond": JAVASCRIPT_SAFE_MS,
    "SafeJavaScriptSnowflakeId.ofSecond": JAVASCRIPT_SAFE_S,
}


def layout_of(args: dict[str, Any], like: SnowflakeLayout) -> SnowflakeLayout:
    """The layout of a vector; Java counts an epoch in the layout's unit, ours in milliseconds."""
    return SnowflakeLayout(
        args.get("timestamp_bit", like.timestamp_bits),
        args.get("machine_bit", like.machine_bits),
        args.get("sequence_bit", like.sequence_bits),
        "ms" if like.unit_ms == 1 else "s",
        args["epoch"] * like.unit_ms if "epoch" in args else like.epoch_ms,
    )


def test_constants() -> None:
    """The epoch and the widths."""
    (cosid,) = load("snowflake", "cosid.constants")
    assert cosid["result"]["COSID_EPOCH"] == COSID_MS.epoch_ms == COSID_S.epoch_ms
    epoch = datetime.fromisoformat(cosid["result"]["COSID_EPOCH_DATE"])
    assert epoch.replace(tzinfo=UTC) == COSID_MS.epoch
    for vector in load("snowflake", "snowflake.constants"):
        due = vector["result"]
        if vector["args"]["class"] == "SafeJavaScriptSnowflakeId":
            assert due["JAVA_SCRIPT_MAX_SAFE_NUMBER"] == JAVASCRIPT_MAX_SAFE_ID
            continue
        layout = CLASSES[vector["args"]["class"]]
        assert layout.timestamp_bits == due["DEFAULT_TIMESTAMP_BIT"]
        assert layout.machine_bits == due["DEFAULT_MACHINE_BIT"]
        assert layout.sequence_bits == due["DEFAULT_SEQUENCE_BIT"]


def test_layouts() -> None:
    """Limits and shifts; a machine id or a width that Java refuses ours refuses as well.

    Java also takes an epoch in milliseconds for a layout in seconds, whose ids are then negative.
    """
    seen = {"fits": 0, "refused": 0, "unsafe": 0, "epoch": 0}
    for vector in load("snowflake", "snowflake.layout"):
        args = vector["args"]
        like = CLASSES[args["class"]]
        message = vector.get("error", {}).get("message", "")
        if like.unit_ms == 1000 and args.get("epoch", 0) > 10**11:
            with pytest.raises(InvalidArgumentError):
                layout_of(args, like)
            seen["epoch"] += 1
        elif "total bit" in message and "JAVA_SCRIPT" not in message:
            with pytest.raises(InvalidArgumentError, match="at most 63"):
                layout_of(args, like)
            seen["refused"] += 1
        elif "JAVA_SCRIPT" in message:
            bits = (args["timestamp_bit"], args["machine_bit"], args["sequence_bit"])
            assert sum(bits) > 63 or not layout_of(args, like).is_javascript_safe
            seen["unsafe"] += 1
        elif "machineId" in message:
            with pytest.raises(InvalidArgumentError, match="machine_id"):
                layout_of(args, like).compose(0, args["machine_id"], 0)
            seen["refused"] += 1
        else:
            layout, due = layout_of(args, like), vector["result"]
            assert layout.last_tick == due["max_timestamp"]
            assert layout.machine_count - 1 == due["max_machine_id"]
            assert layout.max_sequence == due["max_sequence"]
            assert layout.compose(0, 1, 0) == 1 << due["machine_left"]
            assert layout.compose(1, 0, 0) == 1 << due["timestamp_left"]
            assert layout.is_javascript_safe == due["is_safe_javascript"]
            seen["fits"] += 1
    assert all(seen.values()), seen


def test_javascript_safety() -> None:
    """Up to 2^53-1, which is ``Number.MAX_SAFE_INTEGER``; Java's comparison leaves it out."""
    for vector in load("snowflake", "safe_js.is_safe"):
        number = vector["args"]["id"]
        assert (0 <= number <= JAVASCRIPT_MAX_SAFE_ID) == vector["result"] or number in {
            -1,
            JAVASCRIPT_MAX_SAFE_ID,
        }


# Friendly texts of snowflake ids.


def friendly_of(args: dict[str, Any]) -> FriendlyText:
    like = COSID_MS if args["unit"] == "millisecond" else COSID_S
    return FriendlyText(layout_of(args, like), zone=args["zone"], pad=args["pad_start"])


def occurs_twice(local: datetime, zone: str) -> bool:
    aware = local.replace(tzinfo=ZoneInfo(zone))
    return aware.replace(fold=0).utcoffset() != aware.replace(fold=1).utcoffset()


def test_padding() -> None:
    """Machine id and sequence have the decimal widths of their highest."""
    for vector in load("snowflake", "snowflake.parser_config"):
        args, due = vector["args"], vector["result"]
        args["pad_start"] = True
        friendly = friendly_of(args)
        _, machine_id, sequence = friendly.as_text(0).split("-")
        assert (len(machine_id), len(sequence)) == (
            due["machine_char_size"],
            due["sequence_char_size"],
        )


def test_parse_id() -> None:
    """Parts and text of an id in several zones, but for negative ids and times that occur twice."""
    twice = 0
    for vector in load("snowflake", "snowflake.parse_id"):
        args, due = vector["args"], vector["result"]
        friendly, number = friendly_of(args), args["id"]
        if number < 0:
            with pytest.raises(InvalidIdError):
                friendly.layout.parse(number)
            continue
        parts = friendly.layout.parse(number, ZoneInfo(args["zone"]))
        local = datetime.fromisoformat(due["timestamp"])
        assert parts.timestamp.replace(tzinfo=None) == local
        assert (parts.machine_id, parts.sequence % 2**32) == (
            due["machine_id"],
            due["sequence"] % 2**32,
        )
        if occurs_twice(local, args["zone"]):
            twice += 1
            with pytest.raises(InvalidIdError, match="occurs twice"):
                friendly.as_text(number)
        elif parts.sequence < 2**31:
            assert friendly.as_text(number) == due["friendly_id"]
        else:
            assert "--" in due["friendly_id"]
            assert "--" not in friendly.as_text(number)
    assert twice == 4


def test_parse_friendly() -> None:
    """The id of a text; what Java refuses ours refuses, and the lenient forms that Java takes."""
    lenient: set[str] = set()
    for vector in load("snowflake", "snowflake.parse_friendly"):
        args, text = vector["args"], vector["args"]["friendly_id"]
        friendly = friendly_of(args)
        try:
            number = friendly.as_id(text)
        except InvalidIdError as error:
            if "error" not in vector:
                lenient.add(text)
                if "occurs twice" in str(error):
                    assert friendly.as_id(text, fold=0) == vector["result"]["id"]
                    assert friendly.as_id(text, fold=1) > vector["result"]["id"]
        else:
            assert number == vector["result"]["id"]
    assert lenient == LENIENT


LENIENT = {  # Java takes them, some as another id's text
    " 20240101000000000 - 1 - 2 ",
    "-20240101000000000-1-2",
    "20240101000000000--1-2",
    "20240101000000000-1-2-",
    "20240101000000000-+1-+2",
    "20240101000000000-\uff11-2",  # full-width
    "20240101240000000-1-2",  # hour 24
    "20230229000000000-1-2",  # no such day
    "20240230000000000-1-2",
    "20240310023000000-1-2",  # skipped in New York
    "20240331013000500-1-2",  # skipped in London
    "20241027013000500-1-2",  # twice in London
    "20241103013000000-1-2",  # twice in New York
}


# CosIdGenerator.


def text_of(parser: dict[str, Any]) -> CosIdText:
    bits: Any = {f"{k}s": parser[k] for k in ("machine_bit", "sequence_bit")}
    if parser["type"] == "friendly":
        # Java's friendly parser knows no width of the time.
        return CosIdFriendlyText(zone=parser["zone"], pad=parser["pad_start"], **bits)
    return CosIdRadixText(parser["radix"], timestamp_bits=parser["timestamp_bit"], **bits)


def state_of(fields: dict[str, Any]) -> CosIdState:
    return CosIdState(fields["timestamp"], fields["machine_id"], fields["sequence"])


def is_within(state: CosIdState, text: CosIdText) -> bool:
    layout = text.layout
    return (
        0 <= state.timestamp_ms <= layout.last_tick
        and 0 <= state.machine_id < layout.machine_count
        and 0 <= state.sequence <= layout.max_sequence
    )


def test_cosid_defaults() -> None:
    """The widths of CosIdGenerator."""
    (vector,) = load("cosid_generator", "cosid.defaults")
    layout, due = CosIdRadixText().layout, vector["result"]
    assert layout.timestamp_bits == due["DEFAULT_TIMESTAMP_BIT"]
    assert layout.machine_bits == due["DEFAULT_MACHINE_BIT"]
    assert layout.sequence_bits == due["DEFAULT_SEQUENCE_BIT"]


def test_cosid_machine_ids() -> None:
    """20 bits of them."""
    for vector in load("cosid_generator", "cosid.new"):
        text = CosIdRadixText(vector["args"]["radix"])
        state = CosIdState(0, vector["args"]["machine_id"], 0)
        if "error" in vector:
            with pytest.raises(InvalidIdError):
                text.as_text(state)
        else:
            assert text.as_state(text.as_text(state)) == state


def test_cosid_texts() -> None:
    """The text of a state; a field above its bits, which Java may write, is refused."""
    written = refused = twice = 0
    for vector in load("cosid_generator", "cosid.as_string"):
        text, state = text_of(vector["args"]["parser"]), state_of(vector["args"])
        if not is_within(state, text):
            refused += 1
            with pytest.raises(InvalidIdError, match="bits of time"):
                text.as_text(state)
        elif vector["result"][:10] == "2024110301" and vector["args"]["parser"]["zone"][0] == "A":
            twice += 1
            with pytest.raises(InvalidIdError, match="occurs twice"):
                text.as_text(state)
        else:
            written += 1
            assert text.as_text(state) == vector["result"]
    assert (written + refused + twice, refused > 0, twice > 0) == (576, True, True)


def test_cosid_states() -> None:
    """The state of a text; Java also reads lenient forms and fields above their bits."""
    lenient: set[str] = set()
    for vector in load("cosid_generator", "cosid.as_state"):
        parser, written = vector["args"]["parser"], vector["args"]["id"]
        text = text_of(parser)
        try:
            state = text.as_state(written)
        except InvalidIdError as error:
            if "result" not in vector or not is_within(state_of(vector["result"]), text):
                continue
            lenient.add(written)
            if "occurs twice" in str(error):
                assert isinstance(text, CosIdFriendlyText)
                assert text.as_state(written, fold=0) == state_of(vector["result"])
        else:
            assert state == state_of(vector["result"])
    assert lenient == COSID_LENIENT


COSID_LENIENT = {  # as above
    " 20240101000000000 - 1 - 2 ",
    "20240101000000000--1--2",
    "20240230000000000-1-2",  # no such day
    "20240310023000000-1-2",  # skipped in New York
    "20241103013000000-1-2",  # twice in New York
    "20241103013000000-3-4",
    "20241103013000000-0003-0004",
    "20241103013000000-0000003-00004",
}


def test_cosid_states_sort() -> None:
    """By time, machine id and sequence."""
    for vector in load("cosid_generator", "cosid_state.compare"):
        a, b = state_of(vector["args"]["a"]), state_of(vector["args"]["b"])
        sign = (a > b) - (a < b)
        assert (sign, a == b) == (vector["result"]["compare"], vector["result"]["equals"])
