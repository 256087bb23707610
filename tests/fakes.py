"""Fakes of stores: each is a subclass of the store's own class, so that types are checked, and asks no database."""

from __future__ import annotations

import inspect


class Fake:
    """The beginning of a fake, named before its store, which is frozen and compares attributes that a fake hasn't."""

    __setattr__ = object.__setattr__
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __repr__ = object.__repr__


def inherited_methods(fake: type[Fake]) -> list[str]:
    """Return the public methods that a fake has of its store, where they would ask a database."""
    methods = inspect.getmembers(fake, inspect.isfunction)
    return [name for name, method in methods if not name.startswith("_") and method.__module__.startswith("svc.")]
