"""The mapping behind `app.dependency_overrides`, which knows when it was changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["DependencyOverrides", "OverridesKey"]

Call: TypeAlias = Callable[..., Any]
OverridesKey: TypeAlias = frozenset[tuple[int, int]]


class DependencyOverrides(dict[Call, Call]):
    """Dependencies and what is called in their place.

    Args:
        on_change: Called after every change, so that nothing has to be looked at per request.
    """

    def __init__(self, on_change: Callable[[], None], *args: Any) -> None:
        super().__init__(*args)
        self._on_change = on_change

    @property
    def key(self) -> OverridesKey:
        """Equal for equal overrides."""
        return frozenset((id(call), id(other)) for call, other in self.items())

    def __setitem__(self, call: Call, other: Call) -> None:
        super().__setitem__(call, other)
        self._on_change()

    def __delitem__(self, call: Call) -> None:
        super().__delitem__(call)
        self._on_change()

    def __ior__(self, other: Any) -> DependencyOverrides:  # type: ignore[override,misc]
        self.update(other)
        return self

    def clear(self) -> None:
        """Removes all overrides."""
        super().clear()
        self._on_change()

    def pop(self, *args: Any) -> Any:
        """Removes an override and returns it."""
        found = super().pop(*args)
        self._on_change()
        return found

    def popitem(self) -> tuple[Call, Call]:
        """Removes the last override and returns it."""
        found = super().popitem()
        self._on_change()
        return found

    def setdefault(self, *args: Any) -> Any:
        """Adds an override unless there is one."""
        found = super().setdefault(*args)
        self._on_change()
        return found

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds several overrides."""
        super().update(*args, **kwargs)
        self._on_change()
