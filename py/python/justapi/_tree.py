"""The dependency tree of a route, flattened into slots and calls.

The compiler makes it once. Generated wrappers and the slow path read the same tree, so both give
a callable the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from justapi import params
from justapi._callables import is_async_callable, is_async_generator, is_generator
from justapi._fields import ModelField
from justapi.dependencies import CacheKey, Dependant
from justapi.security import SecurityScopes

__all__ = ["MISSING", "Argument", "CallKind", "Node", "Slot", "SlotKind", "Tree"]


class _Missing:
    """Stands for an absent value whose default has to be made for each request."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<missing>"


MISSING = _Missing()

SlotKind: TypeAlias = Literal["param", "body", "request", "form"]
CallKind: TypeAlias = Literal["sync", "async", "generator", "async_generator"]


class Slot:
    """One value that comes out of the request.

    Attributes:
        index: Its position among the slots of the tree.
        kind: What it is.
        field: The parameter, or None for the request itself.
        leaf: Position of the plan's input that carries it.
        member: Its position in that input when it carries several, else None.
        default: Makes the default for each request, or None when the input has it.
    """

    __slots__ = ("default", "field", "index", "kind", "leaf", "member")

    def __init__(self, index: int, kind: SlotKind, field: ModelField | None = None) -> None:
        self.index = index
        self.kind: SlotKind = kind
        self.field = field
        self.leaf = -1
        self.member: int | None = None
        self.default: Callable[[], Any] | None = None


class Node:
    """A call of a dependency or of the handler.

    Attributes:
        dependant: What was read from its signature.
        call: What is called.
        children: The calls before it, in order.
        slots: Its own slots in the order in which FastAPI reports their errors.
        arguments: Name and origin of each argument, in the order of the signature.
        shared: An earlier node whose call this one shares, or None.
        kind: What calling it gives.
    """

    __slots__ = ("arguments", "call", "children", "dependant", "index", "kind", "shared", "slots")

    def __init__(self, dependant: Dependant, index: int) -> None:
        assert dependant.call is not None
        self.dependant = dependant
        self.call: Callable[..., Any] = dependant.call
        self.index = index
        self.children: list[Node] = []
        self.slots: list[Slot] = []
        self.arguments: list[tuple[str, Argument]] = []
        self.shared: Node | None = None
        self.kind: CallKind = "sync"
        if is_async_generator(self.call):
            self.kind = "async_generator"
        elif is_generator(self.call):
            self.kind = "generator"
        elif is_async_callable(self.call):
            self.kind = "async"

    @property
    def ends_before_response(self) -> bool:
        """Whether a dependency with `yield` ends before the response is sent."""
        return self.dependant.scope == "function"


class Constant:
    """An argument that is the same for every request."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Special: TypeAlias = Literal["response", "tasks"]
Argument: TypeAlias = Slot | Node | Constant | Special


class Tree:
    """All slots and calls of a route.

    Args:
        dependant: The handler.

    Attributes:
        root: The handler's node.
        slots: All slots.
        nodes: The calls that are made, dependencies before those who need them, without the root.
        body_slots: The slots out of the body.
        uses_response: Whether anybody takes the injected response.
        uses_tasks: Whether anybody takes background tasks.
        is_form: Whether the body is a form.
    """

    def __init__(self, dependant: Dependant) -> None:
        self.slots: list[Slot] = []
        self.nodes: list[Node] = []
        self.body_slots: list[Slot] = []
        self.uses_response = False
        self.uses_tasks = False
        self.is_form = False
        self._made: dict[CacheKey, Node] = {}
        self._request: Slot | None = None
        self._num_nodes = 0
        self.root = self._add(dependant)
        if self.is_form:
            self.form = self._new_slot("form")

    def _new_slot(self, kind: SlotKind, field: ModelField | None = None) -> Slot:
        slot = Slot(len(self.slots), kind, field)
        self.slots.append(slot)
        return slot

    def request_slot(self) -> Slot:
        """Returns the slot of the request or WebSocket, which all share."""
        if self._request is None:
            self._request = self._new_slot("request")
        return self._request

    def _add(self, dependant: Dependant) -> Node:
        node = Node(dependant, self._num_nodes)
        self._num_nodes += 1
        by_name: dict[str, Argument] = {}
        for dependency in dependant.dependencies:
            child = self._add_dependency(dependency)
            node.children.append(child)
            if dependency.name is not None:
                by_name[dependency.name] = child.shared or child
        for field in (
            *dependant.path_params,
            *dependant.query_params,
            *dependant.header_params,
            *dependant.cookie_params,
        ):
            slot = self._new_slot("param", field)
            node.slots.append(slot)
            by_name[field.name] = slot
        for field in dependant.body_params:
            slot = self._new_slot("body", field)
            node.slots.append(slot)
            self.body_slots.append(slot)
            by_name[field.name] = slot
            self.is_form |= isinstance(field.field_info, params.Form)
        self._add_specials(dependant, by_name)
        node.arguments = [
            (name, by_name[name]) for name in dependant.parameter_names if name in by_name
        ]
        return node

    def _add_specials(self, dependant: Dependant, by_name: dict[str, Argument]) -> None:
        for name in (
            dependant.request_param_name,
            dependant.websocket_param_name,
            dependant.http_connection_param_name,
        ):
            if name is not None:
                by_name[name] = self.request_slot()
        if dependant.response_param_name is not None:
            by_name[dependant.response_param_name] = "response"
            self.uses_response = True
        if dependant.background_tasks_param_name is not None:
            by_name[dependant.background_tasks_param_name] = "tasks"
            self.uses_tasks = True
        if dependant.security_scopes_param_name is not None:
            by_name[dependant.security_scopes_param_name] = Constant(
                SecurityScopes(dependant.oauth_scopes)
            )

    def _add_dependency(self, dependency: Dependant) -> Node:
        key = dependency.cache_key
        made = self._made.get(key)
        if dependency.use_cache and made is not None:
            node = Node(dependency, self._num_nodes)
            self._num_nodes += 1
            node.shared = made
            return node
        node = self._add(dependency)
        self._made.setdefault(key, node)
        self.nodes.append(node)
        return node
