"""The broker of one host: one process that reserves ids for all others."""

from __future__ import annotations

import os
import re
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from ..abc.options import takes
from ..errors import InvalidArgumentError
from ..provider.settings import RespSettings, configured_stores
from ._options import BrokerOptions
from ._run import app_of, run_app
from ._span_store import SpanStore
from ._tokens import TokenScope

if TYPE_CHECKING:
    from ..provider.settings import Settings

__all__ = ("SOCKET", "run_broker")

MODE: Final = re.compile(r"0?[0-7]{3}")
OFFERS: Final = (TokenScope.IDS, TokenScope.SEGMENTS, TokenScope.MACHINES, TokenScope.READ)
"""The scopes that workers need.  With more, any process that can open the socket could raise a
floor to the maximum.
"""

KEY_BYTES: Final = 32

SOCKET: Final = "/run/aiocosid/broker.sock"


@takes(BrokerOptions)
def run_broker(settings: Settings, options: BrokerOptions, /) -> None:
    """Run the broker of a host on a Unix socket, in this process, until a signal ends it.

    Workers use it as their store: ``aiocosid+unix:///run/aiocosid/broker.sock``.  The broker
    reserves spans of each counter in the store at the top of the settings, and splits them into
    segments in memory.  Its generators serve `RemoteId`, so all workers together need only one
    machine id.

    Args:
        settings: the settings, as `load_settings` returns them.  The keys of ``[server]`` for
            addresses, processes and other systems' protocols are not used.
        options: the keyword arguments of `BrokerOptions`.

    Raises:
        InvalidSettingsError: the settings are wrong.
        InvalidArgumentError: the settings have no store at the top, or only a store in memory; the
            mode is not valid; or the socket cannot be used.
        CosIdError: the generators cannot be opened.
        KeyboardInterrupt: SIGINT has ended it in an orderly way.
    """
    if any(url.startswith("memory:") for url, *_ in configured_stores(settings)):
        rule = "must outlive the broker: after each start it would begin at 1 again"
        raise InvalidArgumentError("store", "memory:", rule)
    socket, mode = options.socket, options.mode
    if mode is not None and not MODE.fullmatch(mode):
        raise InvalidArgumentError("mode", mode, "must be three octal digits, for example 660")
    if socket is not None:
        listen = f"unix:{socket}"
    elif os.environ.get("LISTEN_FDS"):
        listen = "fd://"
    else:
        listen = f"unix:{SOCKET}"
    given = settings.server.model_fields_set
    server = settings.server.model_copy(
        update={
            "listen": [listen],
            "workers": 1,
            # Only the workers can open the socket, unless the settings say otherwise.
            "unix_tokens": "unix_tokens" in given and settings.server.unix_tokens,
            # A worker has no token, and may not reclaim a machine id.
            "receipt_key": settings.server.receipt_key or token_hex(KEY_BYTES),
            "resp": settings.server.resp or RespSettings(),
            "unix_mode": mode or settings.server.unix_mode,
            **dict.fromkeys(("cosid", "leaf", "tinyid")),
        }
    )
    over = partial(SpanStore, endurance=options.endurance)
    make = partial(app_of, over=over, offers=OFFERS)
    run_app(settings.model_copy(update={"server": server}), make)
