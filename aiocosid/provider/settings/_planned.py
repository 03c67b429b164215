"""One generator of the settings, and the parts of it that are built so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...abc import MAX_ID, GroupedId
from ...snowflake import JAVASCRIPT_MAX_SAFE_ID, CosIdState

if TYPE_CHECKING:
    from ...abc import AnyGenerator, IdConverter
    from ...segment import GroupBy
    from ...snowflake import CosIdText, ShardedLayout, SnowflakeLayout

__all__ = ("LIMITS", "Planned", "example_of")

LIMITS: Final = {"int32": 2**31 - 1, "javascript": JAVASCRIPT_MAX_SAFE_ID, "int64": MAX_ID}
"""The highest number that a reader can hold."""

UUIDS: Final = {
    "uuid4": "919108f7-52d1-4320-9bac-f847db4148a8",
    "uuid7": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
}
"""The examples of RFC 9562."""


@dataclass(slots=True)
class Planned:
    """One generator, built and not opened.

    Attributes:
        path: its table.
        name: by which it is asked for.
        section: its settings.
        namespace: of its counter or machine id.
        counter: its name there.
        store: the store's URL without secrets; empty without a store.
        place: the store's URL with them, to tell stores apart.
        made_store: the store, of a generator that counts there.
        generator: what a user gets.
        layout: of a Snowflake.
        sharded: of a ShardedId.
        text: of a CosIdGenerator.
        inner: what is inside of it.
        group_by: of a grouped one.
        converter: how its numbers are written.
        example: an id of now, as its users see it.
    """

    path: tuple[str, ...]
    name: str
    section: Any
    namespace: str
    counter: str
    store: str = ""
    place: str = field(default="", repr=False)
    made_store: Any = None
    generator: AnyGenerator | None = None
    layout: SnowflakeLayout | None = None
    sharded: ShardedLayout | None = None
    text: CosIdText | None = None
    inner: Planned | None = None
    group_by: GroupBy | None = None
    converter: IdConverter | None = None
    example: str = ""

    @property
    def fields(self) -> SnowflakeLayout | None:
        """The widths of a Snowflake, ShardedId or CosIdGenerator."""
        if self.sharded is not None:
            return self.sharded.bits
        return self.text.layout if self.text is not None else self.layout


def example_of(planned: Planned, now_ms: int) -> str:
    """Return an id as it may be handed out now: of machine 0, or the first of a counter; or a UUID.

    Raises:
        InvalidIdError: the converter has no text for it.
    """
    if planned.text is not None:
        return planned.text.as_text(CosIdState(now_ms, 0, 1))
    if planned.sharded is not None:
        new_id = planned.sharded.compose(now_ms // 1000, planned.section.sharding_id, 1)
    elif planned.layout is not None:
        new_id = planned.layout.compose(planned.layout.tick_at(now_ms), 0, 1)
    elif planned.inner is not None:
        new_id = int(planned.inner.example or 0) << getattr(planned.section, "bits", 0)
    elif planned.section.kind in {
        "own",
        "snowflake",
        "cached_snowflake",
        "sharded",
        "cosid_text",
        "remote",
    }:
        return ""  # there is a problem already, or it is not known
    elif planned.section.kind in UUIDS:
        return UUIDS[planned.section.kind]
    else:
        new_id = getattr(planned.section, "offset", 0) + 1
    if planned.group_by is not None:
        new_id = GroupedId(new_id, _group_of(planned.group_by, now_ms))
    return str(new_id) if planned.converter is None else planned.converter.as_str(new_id)


def _group_of(group_by: GroupBy, now_ms: int) -> str:
    """Return a group of now; the user's key function is not called, since nobody asks for an id."""
    if group_by.is_by_date_alone:
        return group_by.key_at(now_ms)
    return "-".join(filter(None, ("key", group_by.period_at(now_ms))))
