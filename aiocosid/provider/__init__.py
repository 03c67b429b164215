"""Named generators, opened and closed together: requested one by one, or built from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc.lazy import later

if TYPE_CHECKING:
    from ..abc.leases import LeaseTerms as LeaseTerms
    from ._configured import ConfiguredProvider as ConfiguredProvider
    from ._configured import configure as configure
    from ._id_provider import IdProvider as IdProvider
    from ._id_provider import connect as connect
    from .options import OPTIONS as OPTIONS
    from .options import MachineOptions as MachineOptions
    from .options import NamedCached as NamedCached
    from .options import NamedChain as NamedChain
    from .options import NamedCosId as NamedCosId
    from .options import NamedInner as NamedInner
    from .options import NamedLeaf as NamedLeaf
    from .options import NamedSegment as NamedSegment
    from .options import NamedSharded as NamedSharded
    from .options import NamedSnowflake as NamedSnowflake
    from .options import NamedUncertainty as NamedUncertainty
    from .options import OptionSpec as OptionSpec
    from .options import SequenceOptions as SequenceOptions
    from .options import StepOptions as StepOptions
    from .store_urls import SYSTEMS as SYSTEMS
    from .store_urls import store_from_url as store_from_url

__all__ = (
    "OPTIONS",
    "SYSTEMS",
    "ConfiguredProvider",
    "IdProvider",
    "LeaseTerms",
    "MachineOptions",
    "NamedCached",
    "NamedChain",
    "NamedCosId",
    "NamedInner",
    "NamedLeaf",
    "NamedSegment",
    "NamedSharded",
    "NamedSnowflake",
    "NamedUncertainty",
    "OptionSpec",
    "SequenceOptions",
    "StepOptions",
    "configure",
    "connect",
    "store_from_url",
)

if not TYPE_CHECKING:  # otherwise type checkers would accept any name
    __getattr__, __dir__ = later(
        __name__,
        {
            ".options": (
                "OPTIONS LeaseTerms MachineOptions NamedCached "
                "NamedChain NamedCosId NamedInner NamedLeaf NamedSegment NamedSharded "
                "NamedSnowflake NamedUncertainty OptionSpec "
                "SequenceOptions StepOptions"
            ),
            ".store_urls": "SYSTEMS store_from_url",
            "._configured": "ConfiguredProvider configure",
            "._id_provider": "IdProvider connect",
        },
    )
