"""Checks the declaration of a service, and describes it: its calls with their types, orders and keys.

Everything wrong with a declaration is a :class:`UsageError`, when Python reads the class. Only types whose names Python
cannot resolve yet are looked at again when the service is used.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec.inspect import CustomType

from antiphon.kernel.errors import UsageError
from antiphon.services.marks import MethodMark, mark_of

KEY_COLLECTIONS: Final = (list, tuple, set, frozenset)
WAITING: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class ServiceNamespace(dict[str, Any]):
    """The names that a class statement defines; refuses a second operation of one name.

    Python would let the second definition replace the first without a word.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        before = self.get(name)
        if (mark_of(before) or mark_of(value)) and name in self:
            raise UsageError(f"{name} is defined twice in one service; give one of the two another name")
        super().__setitem__(name, value)


class ServiceType(type):
    """The class of services: checks a declaration when Python has read it."""

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **options: Any) -> ServiceNamespace:
        return ServiceNamespace()

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **options: Any) -> None:
        super().__init__(name, bases, namespace, **options)
        if bases:
            check_class(cls)


@dataclass(frozen=True)
class ServiceCall:
    """An operation or a query of a service."""

    service: str
    name: str
    mark: MethodMark
    method: Callable[..., Any]
    signature: inspect.Signature
    arguments: type[msgspec.Struct]
    """Its parameters after the store, as a type."""
    result: Any
    """The type of its result."""
    types: Mapping[str, Any]
    """The type of each parameter."""

    @property
    def order(self) -> str:
        """The order of an operation."""
        return self.mark.strength

    @property
    def is_operation(self) -> bool:
        """Whether replicas apply it; a query only reads."""
        return self.mark.kind == "operation"

    @property
    def full_name(self) -> str:
        """Its name with that of the service."""
        return f"{self.service}.{self.name}"

    def keys(self, arguments: msgspec.Struct) -> tuple[bytes, ...]:
        """The keys of a call with these arguments: each once, sorted."""
        found = {key for name in self.mark.keys for key in key_bytes(getattr(arguments, name))}
        return tuple(sorted(found))


@dataclass(frozen=True)
class ServiceInvariant:
    """A condition that the store must always meet."""

    name: str
    method: Callable[..., Any]


@dataclass(frozen=True)
class ServiceDescription:
    """A service as replicas, proxies and ``antiphon advise`` see it."""

    service: ServiceType
    calls: Mapping[str, ServiceCall]
    """Operations and queries by name."""
    invariants: tuple[ServiceInvariant, ...]

    @property
    def name(self) -> str:
        """The name of the service."""
        return self.service.__name__

    @property
    def operations(self) -> dict[str, ServiceCall]:
        """The operations, which replicas apply, by name."""
        return {name: call for name, call in self.calls.items() if call.is_operation}

    @property
    def queries(self) -> dict[str, ServiceCall]:
        """The queries, which only read, by name."""
        return {name: call for name, call in self.calls.items() if not call.is_operation}

    @property
    def has_keys(self) -> bool:
        """Whether operations say what they are about; otherwise all are about the same."""
        return any(call.mark.keys for call in self.calls.values() if call.is_operation)


@lru_cache(maxsize=256)
def describe(service: ServiceType) -> ServiceDescription:
    """Describe a service; :class:`UsageError` if its declaration cannot work."""
    if type(service) is not ServiceType or service is base_of(service):
        raise UsageError(f"{service!r} is not a service: a class that inherits from antiphon.Service is")
    check_class(service)
    methods = marked_methods(service)
    calls = {
        name: describe_call(service, name, method) for name, method in methods.items() if kind_of(method) != "invariant"
    }
    invariants = tuple(
        ServiceInvariant(name, method) for name, method in methods.items() if kind_of(method) == "invariant"
    )
    return ServiceDescription(service, calls, invariants)


def base_of(service: type) -> type:
    """The class that all services inherit from, whose names are taken."""
    return service.__mro__[-2]


def kind_of(method: object) -> str:
    """Operation, query or invariant."""
    mark = mark_of(method)
    return "" if mark is None else mark.kind


def marked_methods(service: type) -> dict[str, Callable[..., Any]]:
    """The marked methods of a service, inherited methods first, in the order of the sources."""
    found: dict[str, Callable[..., Any]] = {}
    for above in reversed(service.__mro__):
        for name, value in vars(above).items():
            if mark_of(value) is not None:
                found[name] = value
            elif name in found:
                kind = kind_of(found[name])
                raise UsageError(
                    f"{above.__name__}.{name} replaces an {kind} without being one; put @antiphon.{kind} above it, or "
                    "give it another name"
                )
    return found


def check_class(service: type) -> None:
    """Check all of a declaration that needs no types from elsewhere, and types if Python can resolve them."""
    methods = marked_methods(service)
    for name, method in methods.items():
        check_method(service, name, method)
    marks = {name: mark for name, method in methods.items() if (mark := mark_of(method)) is not None}
    check_keys(service, marks)
    for name, method in methods.items():
        if marks[name].kind != "invariant":
            try:
                describe_call(service, name, method)
            except UnresolvedTypeError:
                continue


def check_keys(service: type, marks: Mapping[str, MethodMark]) -> None:
    """Either all operations say what they are about, or none."""
    operations = {name: mark for name, mark in marks.items() if mark.kind == "operation"}
    keyed = sorted(name for name, mark in operations.items() if mark.keys)
    keyless = sorted(operations.keys() - set(keyed))
    if keyed and keyless:
        raise UsageError(
            f"{service.__name__}.{keyless[0]} has no keys, and {keyed[0]} has: nothing would order the two against "
            f"each other; name the parameters that {keyless[0]} is about, or give no operation keys"
        )
    for name, mark in marks.items():
        if mark.kind == "query" and mark.strength == "latest" and keyed and not mark.keys:
            raise UsageError(f"{service.__name__}.{name} reads the latest state of no keys; name its keys")


def check_method(service: type, name: str, method: Callable[..., Any]) -> None:
    """Check what Python calls the signature of a method."""
    full = f"{service.__name__}.{name}"
    if hasattr(base_of(service), name) or name.startswith("_"):
        raise UsageError(f"{full} cannot have this name: services have it already, or it begins with an underscore")
    if not inspect.isfunction(method):
        raise UsageError(f"{full} is not a plain method; the decorator of antiphon must be the outermost one")
    if any(is_kind(method) for is_kind in WAITING):
        raise UsageError(f"{full} is async or a generator: an operation runs at once and may not wait; use a plain def")
    parameters = list(inspect.signature(method).parameters.values())
    if any(one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY} for one in parameters):
        raise UsageError(f"{full} has a parameter with * or /; list its parameters by their names")
    if len(parameters) < 2:
        raise UsageError(f"{full} needs the parameters self and store")
    mark = mark_of(method)
    assert mark is not None, "only marked methods are looked at"
    if mark.kind == "invariant" and len(parameters) > 2:
        raise UsageError(f"{full} is an invariant, and takes nothing but the store")
    names = [one.name for one in parameters[2:]]
    for key in mark.keys:
        if key not in names:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise UsageError(f"{full} has no parameter {key!r} for its keys; {has}")


class UnresolvedTypeError(UsageError):
    """The name of a type means nothing yet where a service is declared."""


def describe_call(service: type, name: str, method: Callable[..., Any]) -> ServiceCall:
    """The types of an operation or query."""
    full = f"{service.__name__}.{name}"
    mark = mark_of(method)
    assert mark is not None, "only marked methods are looked at"
    try:
        module = sys.modules.get(method.__module__)
        hints = get_type_hints(method, vars(module) if module else None, dict(vars(service)), include_extras=True)
    except NameError as error:
        raise UnresolvedTypeError(
            f"a type of {full} is not known ({error}); define or import it at the top of {method.__module__}"
        ) from None
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())[2:]
    fields: list[tuple[str, Any, Any]] = []
    for parameter in parameters:
        if parameter.name not in hints:
            raise UsageError(
                f"{full} does not say the type of {parameter.name}; write for example {parameter.name}: str"
            )
        check_type(f"the type of {parameter.name} in {full}", hints[parameter.name])
        default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
        fields.append((parameter.name, hints[parameter.name], default))
    if "return" not in hints:
        raise UsageError(f"{full} does not say what it returns; write -> None if it is nothing")
    check_type(f"the result of {full}", hints["return"])
    for key in mark.keys:
        if not is_key_type(hints[key]):
            raise UsageError(
                f"the key {key} of {full} has type {type_name(hints[key])}; a key is a str, bytes, int, UUID or Enum, "
                "or a collection of these"
            )
    return ServiceCall(
        service=service.__name__,
        name=name,
        mark=mark,
        method=method,
        signature=signature.replace(parameters=parameters),
        arguments=arguments_type(full, fields),
        result=hints["return"],
        types={parameter.name: hints[parameter.name] for parameter in parameters},
    )


def arguments_type(full: str, fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    """The parameters of a call as a type that refuses what it does not know."""
    try:
        return msgspec.defstruct(full.replace(".", "_"), fields, forbid_unknown_fields=True, frozen=True, kw_only=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the parameters of {full} cannot travel: {error}") from error


def check_type(place: str, kind: Any) -> None:
    """Refuse a type whose values could not travel, or would arrive as something else."""
    try:
        msgspec.msgpack.Decoder(kind)
        information = msgspec.inspect.type_info(kind)
    except (TypeError, ValueError, NameError) as error:
        raise UsageError(f"{place} is {type_name(kind)}, whose values cannot travel: {error}") from None
    custom = first_custom(information, set())
    if custom is not None:
        raise UsageError(
            f"{place} is {type_name(kind)}, and values of {custom.__name__} cannot travel; take a str, int, list, "
            "dataclass, msgspec.Struct or another type that msgspec encodes"
        )


def first_custom(information: Any, seen: set[type]) -> type | None:
    """The first class within a type that msgspec does not know."""
    if isinstance(information, CustomType):
        return information.cls
    of = getattr(information, "cls", None)
    if of is not None:
        if of in seen:
            return None
        seen.add(of)
    for name in getattr(information, "__struct_fields__", ()):
        inner = getattr(information, name)
        for one in inner if isinstance(inner, tuple) else (inner,):
            if isinstance(one, msgspec.Struct) and (found := first_custom(one, seen)) is not None:
                return found
    return None


def is_key_type(kind: Any) -> bool:
    """Whether values of a type can say what a call is about."""
    origin = get_origin(kind)
    if origin is Annotated:
        return is_key_type(get_args(kind)[0])
    if origin in {Union, UnionType}:
        return all(one is type(None) or is_key_type(one) for one in get_args(kind))
    if origin is Literal:
        return all(isinstance(one, str | int) for one in get_args(kind))
    if origin in KEY_COLLECTIONS:
        return all(one is ... or is_key_type(one) for one in get_args(kind))
    return isinstance(kind, type) and kind is not bool and issubclass(kind, str | bytes | int | UUID | Enum)


def key_bytes(value: Any) -> Iterable[bytes]:
    """The keys that an argument stands for: none for None, several for a collection."""
    if value is None:
        return ()
    if isinstance(value, KEY_COLLECTIONS):
        return [key for one in value for key in key_bytes(one)]
    if isinstance(value, Enum):
        return key_bytes(value.value)
    if isinstance(value, bytes):
        return (value,)
    try:
        return (str(value).encode(),)
    except UnicodeEncodeError as error:
        raise UsageError(f"the key {value!r} is not text that can be written in UTF-8") from error


def type_name(kind: Any) -> str:
    """A type as people write it."""
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
