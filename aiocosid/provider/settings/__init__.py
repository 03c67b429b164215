"""Settings: a TOML file, the environment, or a mapping, checked before anything is opened.

`aiocosid.configure` builds a provider from them; `check_settings` reports what it would build.
"""

from __future__ import annotations

from ...errors.base import SettingsProblem as SettingsProblem
from . import _extra as _extra
from ._addresses import Address as Address
from ._addresses import address_of as address_of
from ._addresses import is_loopback as is_loopback
from ._generators import CachedSettings as CachedSettings
from ._generators import ChainSettings as ChainSettings
from ._generators import CosIdSettings as CosIdSettings
from ._generators import CounterSettings as CounterSettings
from ._generators import GroupedSettings as GroupedSettings
from ._generators import IntegerSettings as IntegerSettings
from ._generators import LeafSettings as LeafSettings
from ._generators import OwnGeneratorSettings as OwnGeneratorSettings
from ._generators import RemoteSettings as RemoteSettings
from ._generators import SegmentSettings as SegmentSettings
from ._generators import ShardedSettings as ShardedSettings
from ._generators import SnowflakeSettings as SnowflakeSettings
from ._generators import UncertaintySettings as UncertaintySettings
from ._generators import UuidSettings as UuidSettings
from ._groups import GroupReport as GroupReport
from ._groups import check_groups as check_groups
from ._load import configured_store as configured_store
from ._load import configured_stores as configured_stores
from ._load import load_settings as load_settings
from ._load import make_stores as make_stores
from ._models import LeafTagsSettings as LeafTagsSettings
from ._models import MachineSettings as MachineSettings
from ._models import OwnStoreSettings as OwnStoreSettings
from ._models import Settings as Settings
from ._models import TieredSettings as TieredSettings
from ._report import GeneratorReport as GeneratorReport
from ._report import ServerReport as ServerReport
from ._report import SettingsReport as SettingsReport
from ._report import ShardingReport as ShardingReport
from ._report import check_settings as check_settings
from ._server import DialectSettings as DialectSettings
from ._server import LeafDialectSettings as LeafDialectSettings
from ._server import LimitSettings as LimitSettings
from ._server import RespSettings as RespSettings
from ._server import ServerSettings as ServerSettings
from ._server import TinyidDialectSettings as TinyidDialectSettings
from ._server import TokenSettings as TokenSettings
from ._sharding import IntervalShardingSettings as IntervalShardingSettings
from ._sharding import ModShardingSettings as ModShardingSettings
from ._sharding import SnowflakeShardingSettings as SnowflakeShardingSettings
from ._texts import ConverterSettings as ConverterSettings
from ._texts import DatePrefixSettings as DatePrefixSettings
from ._texts import GroupPrefixSettings as GroupPrefixSettings
from ._texts import LayoutSettings as LayoutSettings
from ._warnings import expiry_warnings_of as expiry_warnings_of

__all__ = (
    "Address",
    "CachedSettings",
    "ChainSettings",
    "ConverterSettings",
    "CosIdSettings",
    "CounterSettings",
    "DatePrefixSettings",
    "DialectSettings",
    "GeneratorReport",
    "GroupPrefixSettings",
    "GroupReport",
    "GroupedSettings",
    "IntegerSettings",
    "IntervalShardingSettings",
    "LayoutSettings",
    "LeafDialectSettings",
    "LeafSettings",
    "LeafTagsSettings",
    "LimitSettings",
    "MachineSettings",
    "ModShardingSettings",
    "OwnGeneratorSettings",
    "OwnStoreSettings",
    "RemoteSettings",
    "RespSettings",
    "SegmentSettings",
    "ServerReport",
    "ServerSettings",
    "Settings",
    "SettingsProblem",
    "SettingsReport",
    "ShardedSettings",
    "ShardingReport",
    "SnowflakeSettings",
    "SnowflakeShardingSettings",
    "TieredSettings",
    "TinyidDialectSettings",
    "TokenSettings",
    "UncertaintySettings",
    "UuidSettings",
    "address_of",
    "check_groups",
    "check_settings",
    "configured_store",
    "configured_stores",
    "expiry_warnings_of",
    "is_loopback",
    "load_settings",
    "make_stores",
)
