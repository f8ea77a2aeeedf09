"""Known-bad owners, clients and maintenance jobs, each one small edit away from a model; and good ones that use the
freedoms of the documents. The kit's tests require that its checks fail every bad one and no good one.

    @mutant_method("_replay", "PROFILE-RETRY-01", bugs=("FB09",))
    def replay_is_a_conflict(self: ModelOwner, table, request):
        "Answers the replay of a landed attempt as a conflict."
        return None

Its id is the name with hyphens: `replay-is-a-conflict`. `mutant` registers a class, for an edit of several methods;
`good` and `good_method` register a subject that no check may accuse.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from inspect import signature
from typing import Any, TypeVar, cast, get_type_hints

from conformance.models.owner import ModelOwner
from conformance.requirements.catalogue import load

T = TypeVar("T", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A subject whose verdict is known."""

    id: str
    title: str
    """What the subject does wrong, or which freedom it uses."""
    make: type
    side: str
    """`owner` or `client`: how the kit drives it."""
    violates: tuple[str, ...]
    """The violation that detects the mutant must name one of these requirements; empty for a good subject."""
    bugs: tuple[str, ...] = ()
    """The rows of the list of field bugs that have its shape."""
    freedoms: tuple[str, ...] = ()
    """The freedoms that a good subject uses."""
    found_by: str = ""
    """The only layer that finds the mutant: `programs`. Empty: examples find it."""


_mutants: dict[str, Mutant] = {}


def mutant(*violates: str, bugs: tuple[str, ...] = (), found_by: str = "") -> Callable[[T], T]:
    """Register a known-bad subject. Raises `ValueError` if it has no requirement, or one that does not exist."""
    if not violates:
        raise ValueError("a mutant violates at least one requirement")
    return partial(_register, violates=violates, bugs=bugs, found_by=found_by)


def good(*freedoms: str) -> Callable[[T], T]:
    """Register a subject that violates nothing, and uses these freedoms."""
    return partial(_register, freedoms=freedoms)


def mutant_method(method: str, *violates: str, bugs: tuple[str, ...] = (), found_by: str = "") -> Callable[[F], F]:
    """Register a mutant that differs from a model in one method: the decorated function, whose `self` is annotated with
    the model. Raises `TypeError` if it has other parameters than the model's method."""
    return partial(_differ, method, mutant(*violates, bugs=bugs, found_by=found_by))


def mutant_functions(
    method: str, base: type, *violates: str, found_by: str = "", **mutants: tuple[Any, ...]
) -> None:  # fmt: skip
    """Register mutants that differ from `base` in one value: that of `method`, which depends on its arguments alone.
    By name: the title, the function, and what the mutant violates besides `violates`. Raises `TypeError` if a function
    has other parameters than the method, without its `self`."""
    for name, (title, function, *more) in mutants.items():
        if list(signature(function).parameters) != list(signature(getattr(base, method)).parameters)[1:]:
            raise TypeError(f"{name} has other parameters than {base.__name__}.{method}")
        body = {method: staticmethod(function), "__doc__": title, "__module__": base.__module__}
        mutant(*violates, *more, found_by=found_by)(type(name, (base,), body))


def good_method(method: str, *freedoms: str) -> Callable[[F], F]:
    """Register a good subject that differs from a model in one method, as `mutant_method` does."""
    return partial(_differ, method, good(*freedoms))


def _differ(method: str, register: Callable[[type], type], replacement: Any) -> Any:
    base = get_type_hints(replacement)["self"]
    if list(signature(replacement).parameters) != list(signature(getattr(base, method)).parameters):
        raise TypeError(f"{replacement.__name__} has other parameters than {base.__name__}.{method}")
    body = {method: replacement, "__doc__": replacement.__doc__, "__module__": replacement.__module__}
    register(type(replacement.__name__, (base,), body))
    return replacement


def original(self: S) -> S:
    """The methods of the model, for a function that replaces one of them."""
    return cast(S, super(type(self), self))


def _register(
    made: T, *, violates: tuple[str, ...] = (), bugs: tuple[str, ...] = (), freedoms: tuple[str, ...] = (),
    found_by: str = "",
) -> T:  # fmt: skip
    known = {entry.id for entry in (*load().requirements, *load().freedoms)}
    unknown = [name for name in (*violates, *freedoms) if name not in known]
    if unknown:
        raise ValueError(f"the catalogue has no {', '.join(unknown)}")
    identifier = re.sub(r"_|(?<=[^_])(?=[A-Z0-9])", "-", made.__name__).lower()
    known_as = _mutants[identifier].make if identifier in _mutants else made
    if (known_as.__module__, known_as.__name__) != (made.__module__, made.__name__):
        raise ValueError(f"two mutants are called {identifier!r}")
    _mutants[identifier] = Mutant(
        id=identifier, title=" ".join((made.__doc__ or "").split()), make=made,
        side="owner" if issubclass(made, ModelOwner) else "client", violates=violates, bugs=bugs, freedoms=freedoms,
        found_by=found_by,
    )  # fmt: skip
    return made


beyond = partial(mutant, found_by="programs")
"""As `mutant`, for one that no example finds."""
beyond_method = partial(mutant_method, found_by="programs")
beyond_functions = partial(mutant_functions, found_by="programs")


@cache
def all_mutants() -> dict[str, Mutant]:
    """Every mutant and every good subject, by id."""
    for module in sorted(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")):
        importlib.import_module(module)
    return dict(sorted(_mutants.items()))


def memory(make: Callable[[], Any]) -> Any:
    """State of each instance, initially empty: `seen: set[str] = memory(set)` in the body of a class."""
    return cached_property(lambda _: make())


def memory_of(self: Any, kind: Callable[[], S]) -> S:
    """What a function that replaces a method keeps for this subject, initially empty: `memory_of(self, set[str])`."""
    kept: S = self.__dict__.setdefault("_memory", kind())
    return kept


class _Around:
    def __init__(self, operations: tuple[str, ...], change: Callable[[Any, Any, Callable[[], Any]], Any]) -> None:
        self._operations = operations
        self._change = change

    def __set_name__(self, owner: type, name: str) -> None:
        for operation in self._operations:
            setattr(owner, operation, self._method(owner, operation))

    def _method(self, owner: type, operation: str) -> Callable[[Any, str, Any], Any]:
        def answer(handler: Any, client: str, request: Any) -> Any:
            return self._change(handler, request, lambda: getattr(super(owner, handler), operation)(client, request))

        return answer


def around(*operations: str) -> Callable[[Callable[[Any, Any, Callable[[], Any]], Any]], Any]:
    """For a method that answers all these operations: it gets the request, and a function that asks the model."""
    return partial(_Around, operations)


def handler(identifier: str, *arguments: Any) -> Any:
    """A new handler for the mutant of this id. Raises `KeyError` for an unknown id."""
    return all_mutants()[identifier].make(*arguments)
