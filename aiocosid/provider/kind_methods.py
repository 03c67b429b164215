"""The methods of providers, made of the kinds: each asks for a generator by its name."""

from __future__ import annotations

from collections.abc import Coroutine
from inspect import Parameter, Signature
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)

from ..abc.options import documented, parameters_of

if TYPE_CHECKING:
    from ..abc import AnyGenerator, IdConverter
    from ..generators.text import StringIdGenerator
    from .specs import Kind

__all__ = ("KindMethod", "NamedMethod", "named", "plain", "shared", "text")

P = ParamSpec("P")
G = TypeVar("G", bound="AnyGenerator")
M_co = TypeVar("M_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

CONVERTER: Final = "    converter: "  # in the words of a kind that takes one
OF_CONVERTER: Final = "IdConverter | None"
EITHER: Final = Parameter.POSITIONAL_OR_KEYWORD


class KindMethod(Generic[M_co]):
    """The method of a kind; its name, arguments and words are the kind's, also in ``help()``."""

    _takes_batch = False

    def __init__(self, kind: Kind[..., Any]) -> None:
        self._kind = kind

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
        provider: Any,  # noqa: ANN401 - whose method it is
        /,
        name: str | None = None,
        converter: IdConverter | None = None,
        **given: Any,  # noqa: ANN401 - as its signature says
    ) -> Any:  # noqa: ANN401 - what the provider returns for a spec
        """Ask the provider for the generator."""
        others = {"batch": given.pop("batch", None)} if self._takes_batch else {}
        name = self._kind.name if name is None else name
        if name is None:
            raise TypeError("missing argument 'name'")
        return provider._ask(name, self._kind(**given).written(converter), **others)

    @property
    def __signature__(self) -> Signature:
        """The arguments, for ``help()``."""
        default: Any = Parameter.empty if self._kind.name is None else self._kind.name
        found = [
            Parameter("self", EITHER),
            Parameter("name", EITHER, default=default, annotation="str"),
        ]
        if CONVERTER in self._kind.doc:
            found.append(Parameter("converter", EITHER, default=None, annotation=OF_CONVERTER))
        if self._takes_batch:
            found.append(Parameter("batch", EITHER, default=None, annotation="int | None"))
        return Signature([*found, *parameters_of(self._kind.options)])

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - as the attribute is
        if name == "__doc__":  # a property of this name would be the class's own
            return documented(self._kind.doc, self._kind.options, "")
        return super().__getattribute__(name)


class NamedMethod(Protocol[P, R_co, T_co]):
    """A method of a kind that needs a name."""

    @overload
    def __call__(self, name: str, *args: P.args, **options: P.kwargs) -> R_co: ...

    @overload
    def __call__(
        self, name: str, converter: IdConverter, *args: P.args, **options: P.kwargs
    ) -> T_co: ...


class SharedMethod(Protocol[P, R_co, T_co]):
    """A method of a kind that has a name by default."""

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
        """Return the generator of this name, which the first call creates."""
        ...


class TextMethod(Protocol[P, R_co]):
    """A method of a kind whose ids are text, and that has a name by default."""

    def __call__(self, name: str = ..., *args: P.args, **options: P.kwargs) -> R_co:
        """Return the generator of this name, which the first call creates."""
        ...


Later: TypeAlias = Coroutine[object, object, G]


def named(kind: Kind[P, G]) -> KindMethod[NamedMethod[P, Later[G], Later[StringIdGenerator]]]:
    """Return the method of `IdProvider` for a kind that needs a name; it has to be awaited."""
    return KindMethod(kind)


def shared(kind: Kind[P, G]) -> KindMethod[SharedMethod[P, Later[G], Later[StringIdGenerator]]]:
    """Return the method for a kind that has a name by default."""
    return KindMethod(kind)


def plain(kind: Kind[P, G]) -> KindMethod[PlainMethod[P, Later[G]]]:
    """Return the method for a kind that takes no converter."""
    return KindMethod(kind)


def text(kind: Kind[P, G]) -> KindMethod[TextMethod[P, Later[G]]]:
    """Return the method for a kind whose ids are text, and that has a name by default."""
    return KindMethod(kind)
