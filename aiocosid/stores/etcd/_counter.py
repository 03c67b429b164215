"""A counter as it lies in etcd, and the one step that changes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ...abc import MAX_ID
from ...errors import CorruptCounterError
from ._errors import STORE
from ._server import put, same, same_value

if TYPE_CHECKING:
    from ._server import Member

__all__ = ("Known", "integer")

INTEGER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")


class Known(NamedTuple):
    """A counter as it was.

    Attributes:
        key: where.
        revision: the cluster's when it was written last; 0 if it is not there.
        last_max_id: what it holds; None if it is not there.
    """

    key: bytes
    revision: int
    last_max_id: int | None

    @classmethod
    async def read(cls, member: Member, key: bytes) -> Self:
        """Read it.

        Raises:
            CorruptCounterError: it holds something else.
        """
        return cls._of(key, (await member.look(key)).responses[0])

    async def change(self, member: Member, to: int) -> tuple[bool, Self]:
        """Write it if nobody has since; tell whether that was done, and how it is now.

        Raises:
            CorruptCounterError: somebody else has written something else.
        """
        compares = [same(self.key, self.revision)]
        if self.last_max_id is not None:
            # A cluster that was restored counts its revisions from an earlier one.
            compares.append(same_value(self.key, b"%d" % self.last_max_id))
        reply = await member.change(compares, [put(self.key, b"%d" % to)], else_look=[self.key])
        if reply.succeeded:
            return True, type(self)(self.key, reply.header.revision, to)
        return False, self._of(self.key, reply.responses[0])

    @classmethod
    def _of(cls, key: bytes, response: Any) -> Self:  # noqa: ANN401 - the driver's
        found = response.response_range.kvs
        if not found:
            return cls(key, 0, None)
        if (number := integer(found[0].value)) is None:
            what = f"{found[0].value[:40]!r}"
            raise CorruptCounterError(STORE, counter=key.decode(), found=what)
        return cls(key, found[0].mod_revision, number)


def integer(value: bytes) -> int | None:
    """Return a number as we write it, 0 to 2^63-1; None for anything else."""
    # int() would take spaces, underscores, signs and any length as well.
    if INTEGER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if number <= MAX_ID else None
