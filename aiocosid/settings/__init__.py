"""Settings: a TOML file, the environment, or a mapping, checked before anything is opened.

`aiocosid.configure` builds a provider of them; `check_settings` tells what it would build.
"""

from __future__ import annotations

from ..errors._settings import SettingsProblem as SettingsProblem
from . import _extra as _extra
from ._load import configured_stores as configured_stores
from ._load import load_settings as load_settings
from ._models import CachedSettings as CachedSettings
from ._models import ChainSettings as ChainSettings
from ._models import ConverterSettings as ConverterSettings
from ._models import CosIdSettings as CosIdSettings
from ._models import CounterSettings as CounterSettings
from ._models import DatePrefixSettings as DatePrefixSettings
from ._models import GroupedSettings as GroupedSettings
from ._models import GroupPrefixSettings as GroupPrefixSettings
from ._models import IntegerSettings as IntegerSettings
from ._models import LayoutSettings as LayoutSettings
from ._models import LeafSettings as LeafSettings
from ._models import MachineSettings as MachineSettings
from ._models import OwnGeneratorSettings as OwnGeneratorSettings
from ._models import OwnStoreSettings as OwnStoreSettings
from ._models import SegmentSettings as SegmentSettings
from ._models import Settings as Settings
from ._models import ShardedSettings as ShardedSettings
from ._models import SnowflakeSettings as SnowflakeSettings
from ._models import TieredSettings as TieredSettings
from ._models import UncertaintySettings as UncertaintySettings
from ._models import UuidSettings as UuidSettings
from ._report import GeneratorReport as GeneratorReport
from ._report import SettingsReport as SettingsReport
from ._report import ShardingReport as ShardingReport
from ._report import check_settings as check_settings
from ._sharding import IntervalShardingSettings as IntervalShardingSettings
from ._sharding import ModShardingSettings as ModShardingSettings
from ._sharding import SnowflakeShardingSettings as SnowflakeShardingSettings

__all__ = (
    "CachedSettings",
    "ChainSettings",
    "ConverterSettings",
    "CosIdSettings",
    "CounterSettings",
    "DatePrefixSettings",
    "GeneratorReport",
    "GroupPrefixSettings",
    "GroupedSettings",
    "IntegerSettings",
    "IntervalShardingSettings",
    "LayoutSettings",
    "LeafSettings",
    "MachineSettings",
    "ModShardingSettings",
    "OwnGeneratorSettings",
    "OwnStoreSettings",
    "SegmentSettings",
    "Settings",
    "SettingsProblem",
    "SettingsReport",
    "ShardedSettings",
    "ShardingReport",
    "SnowflakeSettings",
    "SnowflakeShardingSettings",
    "TieredSettings",
    "UncertaintySettings",
    "UuidSettings",
    "check_settings",
    "configured_stores",
    "load_settings",
)
