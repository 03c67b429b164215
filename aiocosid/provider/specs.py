"""The specs of generators: what callers must agree on, creation for a host, and methods."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from ..abc.options import check_names, documented, parameters_of
from ..errors import BusyError

if TYPE_CHECKING:
    from ..abc import AnyGenerator, Clock, IdConverter, IdGenerator, Store
    from ..abc.options import Options
    from ..generators import CounterId
    from ..generators.text import StringIdGenerator
    from ..machine import MachineIdLease

__all__ = (
    "GeneratorHost",
    "GeneratorSpec",
    "Given",
    "Kind",
    "KindMethod",
    "NamedMethod",
    "kind",
    "named",
    "own",
    "plain",
    "shared",
    "text",
)

P = ParamSpec("P")
G = TypeVar("G", bound="AnyGenerator")
G_co = TypeVar("G_co", bound="AnyGenerator", covariant=True)


class GeneratorHost(Protocol):
    """The host for which a spec creates a generator: a provider, or a generator in settings."""

    namespace: str
    clock: Clock
    counters: dict[str, CounterId]
    floors: dict[tuple[str, str], Any]

    @property
    def store(self) -> Store:
        """The store of its counter or sequences."""
        ...

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a generator's options, completed with the host's."""
        ...

    def lease_for(self, bits: int, options: Mapping[str, Any]) -> MachineIdLease:
        """Return the lease of a generator's machine id."""
        ...

    def lane_lease(self, bits: int) -> MachineIdLease:
        """Return the lease of a lane's number."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratorSpec(Generic[G_co]):
    """The generator that a caller requests under a name.

    Attributes:
        kind: the name of the generator's class.
        detail: what two callers must agree on, in addition to kind and converter.
        make: creates the generator for a host, under a name; sends nothing.
        converter: formats its ids; None if the kind itself formats them, or they are numbers.
        is_own: whether it is the caller's own generator, which then has its own root.
        is_text: whether its ids are text.
        resumes: the kind of state from which a successor under the same name continues; "" for
            kinds without such a state.
    """

    kind: str
    detail: object
    make: Callable[[GeneratorHost, str], G_co]
    converter: IdConverter | None = None
    is_own: bool = False
    is_text: bool = False
    resumes: Literal["", "counter", "groups", "remote"] = ""

    @property
    def gives(self) -> type[int | str] | None:
        """The type of the ids; None if it is not known before the generator is created."""
        if self.is_own:
            return None
        return str if self.is_text else int

    def __str__(self) -> str:
        """Describe the generator for messages."""
        if self.is_own:
            return f"a generator of your own, {self.detail!r}"
        written = "" if self.converter is None else f" and {self.converter!r}"
        return f"{self.kind} with {self.detail}{written}"

    def check_agrees(self, name: str, other: GeneratorSpec[Any]) -> None:
        """Raise `BusyError` if a later caller requests another generator under the name."""
        mine, wanted = (
            (each.kind, each.detail, each.converter, each.is_own) for each in (self, other)
        )
        if mine == wanted:
            return
        description = str(other)
        if description == str(self):
            description = f"{other.kind} with another function, zone or converter of the same name"
        remedy = f"take another name for {description}"
        raise BusyError(repr(name), reason=f"is in use as {self}", remedy=remedy)

    def without_make(self) -> GeneratorSpec[G_co]:
        """Return only what callers must agree on; a provider keeps one for each of its names."""
        return replace(self, make=_refuse)

    def written(self, converter: IdConverter | None) -> GeneratorSpec[G_co | StringIdGenerator]:
        """Return the same spec with ids as text, if there is a converter."""
        if converter is None:
            return self

        from ..generators.text import StringIdGenerator

        def make(host: GeneratorHost, name: str) -> StringIdGenerator:
            return StringIdGenerator(cast("IdGenerator", self.make(host, name)), converter)

        return replace(
            cast("GeneratorSpec[StringIdGenerator]", self),
            make=make,
            converter=converter,
            is_text=True,
        )


def own(source: object, make: Callable[[], G]) -> GeneratorSpec[G]:
    """Return the spec of a caller's own generator.

    Args:
        source: the generator, or the function that creates it; a later caller must pass the same.
        make: returns the generator, which is not open.
    """
    return GeneratorSpec("", source, lambda _host, _name: make(), is_own=True)


def _refuse(_host: GeneratorHost, _name: str) -> NoReturn:
    raise NotImplementedError


Given: TypeAlias = Mapping[str, Any]
"""The options that a caller gives."""


class Kind(Generic[P, G_co]):
    """A kind of generator: its options, and its creation.

    Attributes:
        options: the class of its options.
        name: the default name; None if a name is required.
        doc: the description of the provider's method.
    """

    __slots__ = ("_spec", "doc", "name", "options")

    def __init__(
        self,
        options: Callable[P, object],
        spec: Callable[[dict[str, Any]], GeneratorSpec[G_co]],
        name: str | None = None,
    ) -> None:
        self.options: type[Options] = cast("type[Options]", options)
        self.name: str | None = name
        self.doc: str = spec.__doc__ or ""
        self._spec = spec

    def __call__(self, *_: P.args, **given: P.kwargs) -> GeneratorSpec[G_co]:
        """Return the spec of a generator with these options.

        Raises:
            TypeError: an option is missing, or there is no option with that name.
        """
        check_names(self.options, given)
        return self._spec({**given})


def kind(
    options: Callable[P, object], name: str | None = None
) -> Callable[[Callable[[dict[str, Any]], GeneratorSpec[G]]], Kind[P, G]]:
    """Declare a kind with the function that returns its spec; its docstring becomes the method's.

    Args:
        options: the class of its options.
        name: the default name; None if a name is required.
    """
    return lambda spec: Kind(options, spec, name)


M_co = TypeVar("M_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

CONVERTER: Final = "    converter: "  # in the docstring of a kind that takes one
OF_CONVERTER: Final = "IdConverter | None"
EITHER: Final = Parameter.POSITIONAL_OR_KEYWORD


class KindMethod(Generic[M_co]):
    """The method of a kind; it has the kind's name, arguments and docstring, also in ``help()``."""

    _takes_batch = False

    def __init__(self, kind: Kind[..., Any]) -> None:
        self._kind = kind
        default: Any = Parameter.empty if kind.name is None else kind.name
        found = [Parameter("name", EITHER, default=default, annotation="str")]
        if CONVERTER in kind.doc:
            found.append(Parameter("converter", EITHER, default=None, annotation=OF_CONVERTER))
        if self._takes_batch:
            found.append(Parameter("batch", EITHER, default=None, annotation="int | None"))
        self._first = {each.name: each for each in found}

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name
        self.__qualname__ = f"{owner.__qualname__}.{name}"

    @overload
    def __get__(self, provider: None, owner: type) -> Self: ...

    @overload
    def __get__(self, provider: object, owner: type) -> M_co: ...

    def __get__(self, provider: object, owner: type) -> object:
        return self if provider is None else MethodType(self, provider)

    def __call__(
        self,
        provider: Any,  # noqa: ANN401 - the method's object
        /,
        *args: Any,  # noqa: ANN401 - see its signature
        **given: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - the provider's result for a spec
        """Ask the provider for the generator."""
        first = dict(zip(self._first, args, strict=False))
        if len(args) > len(first) or first.keys() & given.keys():
            names = ", ".join(self._first)
            raise TypeError(f"{self.__name__}() takes only {names} by position, each of them once")
        first |= {name: given.pop(name) for name in self._first if name in given}
        name = first.pop("name", None)
        if name is None and (name := self._kind.name) is None:
            raise TypeError(f"{self.__name__}() is called without a name")
        spec = self._kind(**given).written(first.pop("converter", None))
        asked = provider._ask(name, spec, **first)
        if hasattr(asked, "cr_frame"):  # Python names it if the caller does not await it
            asked.__qualname__ = self.__qualname__
        return asked

    @property
    def __signature__(self) -> Signature:
        """The arguments, shown by ``help()``."""
        before = Parameter("self", EITHER), *self._first.values()
        return Signature([*before, *parameters_of(self._kind.options)])

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - depends on the attribute
        if name == "__doc__":  # a property with this name would belong to the class
            return documented(self._kind.doc, self._kind.options, "")
        return super().__getattribute__(name)


class NamedMethod(Protocol[P, R_co, T_co]):
    """A method of a kind that requires a name."""

    @overload
    def __call__(self, name: str, *args: P.args, **options: P.kwargs) -> R_co: ...

    @overload
    def __call__(
        self, name: str, converter: IdConverter, *args: P.args, **options: P.kwargs
    ) -> T_co: ...


class SharedMethod(Protocol[P, R_co, T_co]):
    """A method of a kind that has a default name."""

    @overload
    def __call__(self, name: str = ..., *args: P.args, **options: P.kwargs) -> R_co: ...

    @overload
    def __call__(
        self, name: str, converter: IdConverter, *args: P.args, **options: P.kwargs
    ) -> T_co: ...

    @overload
    def __call__(self, converter: IdConverter, *args: P.args, **options: P.kwargs) -> T_co: ...


class PlainMethod(Protocol[P, R_co]):
    """A method of a kind that takes no converter."""

    def __call__(self, name: str, *args: P.args, **options: P.kwargs) -> R_co:
        """Return the generator with this name, which the first call creates."""
        ...


class TextMethod(Protocol[P, R_co]):
    """A method of a kind whose ids are text, and that has a default name."""

    def __call__(self, name: str = ..., *args: P.args, **options: P.kwargs) -> R_co:
        """Return the generator with this name, which the first call creates."""
        ...


Later: TypeAlias = Coroutine[object, object, G]


def named(kind: Kind[P, G]) -> KindMethod[NamedMethod[P, Later[G], Later[StringIdGenerator]]]:
    """Return the method of `IdProvider` for a kind that requires a name; callers await it."""
    return KindMethod(kind)


def shared(kind: Kind[P, G]) -> KindMethod[SharedMethod[P, Later[G], Later[StringIdGenerator]]]:
    """Return the method for a kind that has a default name."""
    return KindMethod(kind)


def plain(kind: Kind[P, G]) -> KindMethod[PlainMethod[P, Later[G]]]:
    """Return the method for a kind that takes no converter."""
    return KindMethod(kind)


def text(kind: Kind[P, G]) -> KindMethod[TextMethod[P, Later[G]]]:
    """Return the method for a kind whose ids are text, and that has a default name."""
    return KindMethod(kind)
