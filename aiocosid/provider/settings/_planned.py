"""One generator in the settings, with the parts of it that are built so far."""

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
"""The highest number that each kind of reader can hold."""

UUIDS: Final = {
    "uuid4": "919108f7-52d1-4320-9bac-f847db4148a8",
    "uuid7": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
}
"""The examples of RFC 9562."""


@dataclass(slots=True)
class Planned:
    """One generator, built but not opened.

    Attributes:
        path: the path of its table.
        name: its name in the provider.
        section: its settings.
        namespace: the namespace of its counter or machine id.
        counter: the counter's name in the namespace.
        store: the store's URL without secrets; empty without a store.
        place: the store's URL with secrets, to tell stores apart.
        made_store: the store, for a generator that has a counter.
        generator: the generator that users get.
        layout: a Snowflake's layout.
        sharded: a ShardedId's layout.
        text: a CosIdGenerator's text format.
        inner: the wrapped generator.
        group_by: the grouping of a grouped generator.
        converter: the converter that formats its numbers.
        example: an id of the present time, in the form that users see.
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
    """Return an id that could be issued now: from machine 0, or the first of a counter; or a UUID.

    Raises:
        InvalidIdError: the converter has no text for the id.
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
        return ""  # there is already a problem, or it is not known
    elif planned.section.kind in UUIDS:
        return UUIDS[planned.section.kind]
    else:
        new_id = getattr(planned.section, "offset", 0) + 1
    if planned.group_by is not None:
        new_id = GroupedId(new_id, _group_of(planned.group_by, now_ms))
    return str(new_id) if planned.converter is None else planned.converter.as_str(new_id)


def _group_of(group_by: GroupBy, now_ms: int) -> str:
    """Return a present group; the user's key function is not called, since there is no request."""
    if group_by.is_by_date_alone:
        return group_by.key_at(now_ms)
    return "-".join(filter(None, ("key", group_by.period_at(now_ms))))
