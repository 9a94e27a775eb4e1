"""The slow path: all arguments of a plan's target, or everything that is wrong with the request.

Values are looked for in FastAPI's order, so errors come in its order. When there are any,
dependencies whose own parameters are right are still called, as FastAPI calls them: one that
raises 401 answers before the 422.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from pydantic_core import PydanticUndefined

from justapi._exits import raise_swallowed
from justapi._incoming import (
    Incoming,
    extract_body,
    extract_param,
    parse_json_body,
    read_form_values,
)
from justapi._inputs import connection_of, request_of
from justapi._plan import Exchange
from justapi._respond import injected_response
from justapi._tree import Constant, Node, Slot, Tree
from justapi.background import BackgroundTasks
from justapi.datastructures import FormData
from justapi.exceptions import (
    EndpointContext,
    HTTPException,
    RequestValidationError,
    StarletteHTTPException,
    WebSocketRequestValidationError,
)

__all__ = ["Binder"]

Errors = list[dict[str, Any]]


class Binder:
    """The slow path of one route.

    Args:
        tree: Its calls and slots.
        num_inputs: How many arguments the target takes.
        embed: Whether body parameters are members of the body.
        strict_content_type: Whether a body without content type is not taken for JSON.
        path_converters: Converters of path parameters.
        form_limits: Arguments of `Request.form`.
        context: Where the handler is defined.
        is_websocket: Whether the route is a WebSocket's.

    Attributes:
        is_async: Whether `bind` has to be awaited.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        num_inputs: int,
        embed: bool,
        strict_content_type: bool,
        path_converters: dict[str, Callable[[str], Any]],
        form_limits: dict[str, Any],
        context: EndpointContext,
        is_websocket: bool = False,
    ) -> None:
        self._tree = tree
        self._num_inputs = num_inputs
        self._embed = embed
        self._strict = strict_content_type
        self._path_converters = path_converters
        self._form_limits = form_limits
        self._context = context
        self._is_websocket = is_websocket
        self.is_async = tree.is_form or bool(tree.root.children)

    @property
    def bind(self) -> Callable[[Exchange, bytes], tuple[Any, ...] | Awaitable[tuple[Any, ...]]]:
        """The function for the plan."""
        return self._bind_async if self.is_async else self._bind_sync

    def _bind_sync(self, exchange: Exchange, body: bytes) -> tuple[Any, ...]:
        incoming = self._incoming(exchange, body)
        values, errors, _ = self._collect(exchange, incoming)
        if errors:
            raise self._error(errors, incoming)
        return self._arguments(values)

    async def _bind_async(self, exchange: Exchange, body: bytes) -> tuple[Any, ...]:
        if not self._tree.is_form:
            incoming = self._incoming(exchange, body)
            return await self._finish(exchange, incoming)
        incoming = Incoming(exchange.scope)
        form = await self._read_form(exchange)
        try:
            incoming.body = form
            fields = [slot.field for slot in self._tree.body_slots if slot.field is not None]
            await read_form_values(fields, form, incoming)
            return await self._finish(exchange, incoming)
        except BaseException:
            await form.close()
            raise

    async def _finish(self, exchange: Exchange, incoming: Incoming) -> tuple[Any, ...]:
        values, errors, failed = self._collect(exchange, incoming)
        if not errors:
            return self._arguments(values)
        error = self._error(errors, incoming)
        stack: AsyncExitStack[bool] = AsyncExitStack()
        async with stack:
            await _CleanCalls(values, failed, stack).run(self._tree.root)
            raise error
        return raise_swallowed()

    def _incoming(self, exchange: Exchange, body: bytes) -> Incoming:
        scope = exchange.scope
        self._convert_path(scope)
        incoming = Incoming(scope)
        if self._tree.body_slots and not self._is_websocket:
            content_type = next(
                (value for name, value in scope["headers"] if name == b"content-type"), None
            )
            try:
                incoming.body = parse_json_body(
                    body,
                    None if content_type is None else content_type.decode("latin-1"),
                    strict=self._strict,
                )
            except RequestValidationError as error:
                raise RequestValidationError(
                    error.errors(), body=error.body, endpoint_ctx=self._context
                ) from error
        return incoming

    def _convert_path(self, scope: Any) -> None:
        if not self._path_converters:
            return
        values = scope["path_params"]
        for name, convert in self._path_converters.items():
            value = values.get(name)
            if isinstance(value, str):
                try:
                    values[name] = convert(value)
                except ValueError:
                    raise StarletteHTTPException(404) from None

    async def _read_form(self, exchange: Exchange) -> FormData:
        self._convert_path(exchange.scope)
        try:
            return await request_of(exchange).form(**self._form_limits)
        except HTTPException:
            raise
        except ValueError as error:
            raise HTTPException(400, "There was an error parsing the body") from error

    def _collect(
        self, exchange: Exchange, incoming: Incoming
    ) -> tuple[list[Any], Errors, set[Node]]:
        """Fills all slots.

        Returns:
            The values by slot, all errors, and the nodes that cannot be called.
        """
        values: list[Any] = [None] * len(self._tree.slots)
        found: dict[Node, Errors] = {}
        for slot in self._tree.slots:
            if slot.kind == "request":
                values[slot.index] = (
                    connection_of(exchange) if self._is_websocket else request_of(exchange)
                )
            elif slot.kind == "form":
                values[slot.index] = incoming.body
        errors = self._collect_node(self._tree.root, incoming, values, found)
        return values, errors, {node for node, its in found.items() if its}

    def _collect_node(
        self, node: Node, incoming: Incoming, values: list[Any], found: dict[Node, Errors]
    ) -> Errors:
        source = node.shared or node
        known = found.get(source)
        if known is not None:
            # The same parameters have the same errors; FastAPI reports them for each use.
            return known
        errors: Errors = []
        for child in source.children:
            errors.extend(self._collect_node(child, incoming, values, found))
        for slot in source.slots:
            value, its_errors = self._extract(slot, incoming)
            if its_errors:
                errors.extend(its_errors)
            else:
                values[slot.index] = value
        found[source] = errors
        return errors

    def _extract(self, slot: Slot, incoming: Incoming) -> tuple[Any, Errors]:
        assert slot.field is not None
        if slot.kind == "body":
            return extract_body(slot.field, incoming, embed=self._embed)
        return extract_param(slot.field, incoming)

    def _arguments(self, values: list[Any]) -> tuple[Any, ...]:
        arguments: list[Any] = [None] * self._num_inputs
        members: dict[int, list[tuple[int, Any]]] = {}
        for slot in self._tree.slots:
            if slot.member is None:
                arguments[slot.leaf] = values[slot.index]
            else:
                members.setdefault(slot.leaf, []).append((slot.member, values[slot.index]))
        for leaf, its in members.items():
            arguments[leaf] = tuple(value for _, value in sorted(its, key=lambda pair: pair[0]))
        return tuple(arguments)

    def _error(self, errors: Errors, incoming: Incoming) -> Exception:
        if self._is_websocket:
            return WebSocketRequestValidationError(errors, endpoint_ctx=self._context)
        body = None if incoming.body is PydanticUndefined else incoming.body
        return RequestValidationError(errors, body=body, endpoint_ctx=self._context)


class _CleanCalls:
    """Calls the dependencies of a refused request that have all that they need."""

    def __init__(self, values: list[Any], failed: set[Node], stack: Any) -> None:
        self._values = values
        self._failed = failed
        self._stack = stack
        self._results: dict[Node, Any] = {}
        self._response = injected_response()
        self._tasks = BackgroundTasks()

    async def run(self, root: Node) -> None:
        for child in root.children:
            await self._run_node(child.shared or child)

    async def _run_node(self, node: Node) -> None:
        if node in self._results:
            return
        for child in node.children:
            await self._run_node(child.shared or child)
        if node in self._failed:
            return
        arguments = {name: self._argument(value) for name, value in node.arguments}
        result: Any
        if node.kind == "async_generator":
            result = await self._stack.enter_async_context(
                asynccontextmanager(node.call)(**arguments)
            )
        elif node.kind == "generator":
            result = self._stack.enter_context(contextmanager(node.call)(**arguments))
        else:
            positional = [arguments.pop(name) for name in node.dependant.positional]
            result = node.call(*positional, **arguments)
            if node.kind == "async":
                result = await result
        self._results[node] = result

    def _argument(self, origin: Any) -> Any:
        if isinstance(origin, Slot):
            return self._values[origin.index]
        if isinstance(origin, Node):
            return self._results[origin]
        if isinstance(origin, Constant):
            return origin.value
        return self._response if origin == "response" else self._tasks
