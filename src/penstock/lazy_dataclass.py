"""`dataclass` with the same meaning as that of the standard library, made in a fifth of the time.

Python 3.11 compiles the source of up to six methods for each dataclass, in which a start spent a third of its
CPU. Here one function serves all classes where that is as quick. `__init__` is compiled when a class makes
its first object, which most classes of a start never do; `compile_all` does it for all of them. Fields are
those of the standard library: `fields`, `replace`, `asdict` and `field` of `dataclasses` work as ever.
Options that nothing here uses are absent (`order`, `unsafe_hash`, `InitVar`).
`tests/property/test_lazy_dataclass.py` compares both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["compile_all", "dataclass"]

if TYPE_CHECKING:  # a type checker is to see a dataclass
    from dataclasses import dataclass

    def compile_all() -> None:
        """Compile the `__init__` of all classes now, for who is to be quick later: 0.15 ms each."""
else:
    import dataclasses
    from dataclasses import MISSING, FrozenInstanceError, fields
    from operator import attrgetter
    from reprlib import recursive_repr
    from weakref import ref

    _pending = []
    """Classes whose `__init__` is not compiled, as weak references."""

    def compile_all():
        while _pending:
            cls, frozen = _pending.pop()
            if (cls := cls()) is not None and hasattr(cls.__dict__.get("__init__"), "is_first"):
                cls.__init__ = _compiled_init(cls, frozen)

    def dataclass(*, frozen=False, slots=False, eq=True, kw_only=False):
        """Decorates a class whose annotations are its fields, as `dataclasses.dataclass` does."""

        def decorate(cls):
            if cls.__doc__ is None:  # it would compile `__init__` to show how it is called
                cls.__doc__ = f"{cls.__name__}(...)"
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
            methods = {"__init__": _first_init(made, frozen), "__repr__": _repr}
            if eq:
                methods |= _comparison(made, frozen)
            if frozen:
                methods |= _FROZEN
            for name, method in methods.items():
                if name not in cls.__dict__:
                    setattr(made, name, method)
            return made

        return decorate

    def _first_init(cls, frozen):
        """An `__init__` that puts the compiled one in its place."""

        def __init__(self, *args, **kwargs):
            cls.__init__ = _compiled_init(cls, frozen)
            cls.__init__(self, *args, **kwargs)

        __init__.is_first = True
        _pending.append((ref(cls), frozen))
        return __init__

    def _compiled_init(cls, frozen):
        names = {"_set": object.__setattr__, "_made": MISSING}
        by_place, by_name, body = [], [], []
        for field in fields(cls):
            name = value = field.name
            word = name
            if field.default is not MISSING:
                names[f"_default_{name}"] = field.default
                word = f"{name}=_default_{name}"
            elif field.default_factory is not MISSING:
                names[f"_make_{name}"] = field.default_factory
                word = f"{name}=_made"
                value = f"_make_{name}() if {name} is _made else {name}" if field.init else f"_make_{name}()"
            if field.init:
                (by_name if field.kw_only else by_place).append(word)
            elif word == name:
                continue  # `__post_init__` sets it
            elif field.default is not MISSING:
                value = f"_default_{name}"
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        words = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
        lines = "\n    ".join(body or ["pass"])
        made = {}
        exec(f"def __init__({words}):\n    {lines}\n", names, made)
        init = made["__init__"]
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        init.__module__ = cls.__module__
        return init

    @recursive_repr()
    def _repr(self):
        shown = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _comparison(cls, frozen):
        names = [field.name for field in fields(cls) if field.compare]
        values = attrgetter(*names) if names else lambda _: ()

        def __eq__(self, other):
            if other.__class__ is self.__class__:
                return values(self) == values(other)
            return NotImplemented

        def __hash__(self):
            return hash(values(self))

        # Objects that are equal today and change tomorrow have no hash.
        return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}

    def _refuse_set(self, name, value):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _state(self):
        return [getattr(self, field.name) for field in fields(self)]

    def _set_state(self, state):
        for field, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    _FROZEN = {
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }
    """Methods of objects that do not change; copies and pickles are made past them."""
