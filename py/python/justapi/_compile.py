"""Compiles a route: generates the one straight-line function that answers it.

The function takes the plan's inputs and calls dependencies and handler in order. Where the
handler itself can take the inputs, no function is generated and the handler is the target.
Generated source is registered with `linecache`, so tracebacks and debuggers show it.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn

from justapi._bind import Binder
from justapi._concurrency_limit import limited
from justapi._demotion import MAX_BLOCKED_SECONDS, Watch
from justapi._exits import Exits, raise_swallowed
from justapi._inputs import assign_inputs
from justapi._plan import Input, Kind
from justapi._respond import Responder, injected_response
from justapi._tree import MISSING, Constant, Node, Slot, Tree
from justapi.background import BackgroundTasks
from justapi.concurrency import (
    clean_up_in_threadpool,
    contextmanager_in_threadpool,
    run_in_threadpool,
)
from justapi.dependencies import Dependant
from justapi.exceptions import EndpointContext

__all__ = ["Compiled", "GENERATED", "compile_target"]

GENERATED: Final = "<justapi "
"""How the file names of generated functions begin; error output leaves their frames out."""

_serial = itertools.count()


class Compiled:
    """A compiled route.

    Attributes:
        target: What is called with the inputs.
        kind: How it is called.
        inputs: The inputs.
        binder: The slow path.
        tree: The calls.
        is_direct: Whether the target is the user's function.
    """

    __slots__ = ("binder", "inputs", "is_direct", "kind", "target", "tree")

    def __init__(
        self,
        *,
        target: Callable[..., Any],
        kind: Kind,
        inputs: list[Input],
        binder: Binder,
        tree: Tree,
        is_direct: bool,
    ) -> None:
        self.target = target
        self.kind = kind
        self.inputs = inputs
        self.binder = binder
        self.tree = tree
        self.is_direct = is_direct


class _Wrapper:
    """Writes the source of one wrapper."""

    def __init__(
        self,
        tree: Tree,
        *,
        num_inputs: int,
        responder: Responder | None,
        blocking: bool | None,
    ) -> None:
        self.tree = tree
        self.num_inputs = num_inputs
        self.responder = responder
        self.blocking = blocking
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"MISSING": MISSING}
        self.has_request_exits = tree.is_form or any(
            node.kind in ("generator", "async_generator") and not node.ends_before_response
            for node in tree.nodes
        )
        self.has_function_exits = any(
            node.kind in ("generator", "async_generator") and node.ends_before_response
            for node in tree.nodes
        )
        self.is_stream = tree.root.kind in ("generator", "async_generator")
        self.is_async = (
            tree.root.kind in ("async", "async_generator")
            or tree.is_form
            or any(
                node.kind in ("async", "async_generator") or node.dependant.limit is not None
                for node in tree.nodes
            )
        )
        # What the plain list of generators cannot do.
        self.uses_stacks = (
            tree.is_form
            or (self.is_async and blocking is True)
            or any(node.dependant.limit is not None for node in tree.nodes)
        )

    @property
    def is_needed(self) -> bool:
        """Whether the handler itself cannot be the target."""
        tree = self.tree
        return not (
            not tree.nodes
            and not tree.uses_response
            and not tree.uses_tasks
            and not tree.is_form
            and not self.is_stream
            and (self.responder is None or self.responder.is_plain)
            and self._takes_inputs_as_they_are()
        )

    def _takes_inputs_as_they_are(self) -> bool:
        """Whether the inputs in order are the arguments in order."""
        arguments = self.tree.root.arguments
        code: CodeType | None = getattr(self.tree.root.call, "__code__", None)
        if code is None or len(arguments) != self.num_inputs:
            return False
        # A bound method has one parameter more than it takes.
        if hasattr(self.tree.root.call, "__wrapped__") or not _is_positional(
            self.tree.root.call, len(arguments)
        ):
            return False
        return all(
            isinstance(origin, Slot)
            and origin.member is None
            and origin.default is None
            and origin.leaf == position
            for position, (_, origin) in enumerate(arguments)
        )

    @property
    def is_pass_through(self) -> bool:
        """Whether the wrapper only rearranges arguments, so that it needs no await of its own."""
        tree = self.tree
        return (
            not tree.nodes
            and not tree.uses_response
            and not tree.uses_tasks
            and not tree.is_form
            and not self.is_stream
            and (self.responder is None or self.responder.is_plain)
            and tree.root.kind in ("sync", "async")
        )

    def _name(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def _argument(self, origin: Any) -> str:
        if isinstance(origin, Slot):
            text = f"v{origin.leaf}"
            if origin.member is not None:
                text = f"{text}[{origin.member}]"
            if origin.default is not None:
                text = f"({self._name('make', origin.default)}() if {text} is MISSING else {text})"
            return text
        if isinstance(origin, Node):
            return f"d{origin.index}"
        if isinstance(origin, Constant):
            return self._name("constant", origin.value)
        assert origin in ("response", "tasks")
        return str(origin)

    def _call(self, node: Node, call: str, *, in_thread: bool = False) -> str:
        positional = {*node.dependant.positional, *_leading(node)}
        arguments = [
            self._argument(origin) if name in positional else f"{name}={self._argument(origin)}"
            for name, origin in node.arguments
        ]
        if in_thread:
            arguments.insert(0, call)
            call = self._name("run", run_in_threadpool)
        return f"{call}({', '.join(arguments)})"

    def _add_node(self, node: Node, indent: str) -> None:
        result = f"d{node.index}"
        call = self._name("call", node.call)
        in_thread = self.is_async and self.blocking is True
        stack = "inner" if node.ends_before_response else "stack"
        limit = node.dependant.limit
        if limit is not None and node.kind in ("sync", "async"):
            held = self._name("limit", limit.semaphore)
            self.lines.append(f"{indent}async with {held}():")
            indent += "    "
        if node.kind == "sync":
            if self._is_watched:
                self._add_watched_call(result, node, call, indent)
                return
            prefix = "await " if in_thread else ""
            text = f"{prefix}{self._call(node, call, in_thread=in_thread)}"
        elif node.kind == "async":
            text = f"await {self._call(node, call)}"
        elif not self.uses_stacks:
            enter = "enter" if node.kind == "generator" else "enter_async"
            prefix = "" if node.kind == "generator" else "await "
            text = f"{prefix}{stack}.{enter}({self._call(node, call)})"
        else:
            text = self._entered(node, stack, in_thread=in_thread)
        self.lines.append(f"{indent}{result} = {text}")

    def _entered(self, node: Node, stack: str, *, in_thread: bool) -> str:
        """Writes how a generator is entered on an exit stack."""
        is_async = node.kind == "async_generator"
        make: Callable[..., Any] = asynccontextmanager if is_async else contextmanager
        manager = self._call(node, self._name("manager", make(node.call)))
        if in_thread and not is_async:
            manager = f"{self._name('thread', contextmanager_in_threadpool)}({manager})"
            is_async = True
        if node.dependant.limit is not None:
            limit = self._name("limit", node.dependant.limit)
            manager = f"{self._name('limited', limited)}({manager}, {limit})"
            is_async = True
        if is_async:
            return f"await {stack}.enter_async_context({manager})"
        return f"{stack}.enter_context({manager})"

    @property
    def _is_watched(self) -> bool:
        """Whether plain functions run on the loop's thread until they are seen to block."""
        return self.is_async and self.blocking is None

    def _add_watched_call(self, result: str, node: Node, call: str, indent: str) -> None:
        """Writes the call of a plain function between coroutines."""
        watch = self._name("watch", Watch(node.call))
        self.names.update(
            perf_counter=perf_counter,
            MAX_BLOCKED_SECONDS=MAX_BLOCKED_SECONDS,
        )
        self.lines += [
            f"{indent}if {watch}.in_thread:",
            f"{indent}    {result} = await {self._call(node, call, in_thread=True)}",
            f"{indent}else:",
            f"{indent}    before = {watch}.measure() if {watch}.is_suspected else None",
            f"{indent}    start = perf_counter()",
            f"{indent}    {result} = {self._call(node, call)}",
            f"{indent}    if perf_counter() - start > MAX_BLOCKED_SECONDS:",
            f"{indent}        {watch}.saw_long_call(start, before)",
            f"{indent}    elif before is not None:",
            f"{indent}        {watch}.saw_quick_call()",
        ]

    def _add_result(self, indent: str, *, must_respond: bool) -> None:
        """Calls the handler and makes the result of the wrapper of what it returns."""
        root = self.tree.root
        call = self._name("handler", root.call)
        extra = ", ".join(
            [
                "response" if self.tree.uses_response else "None",
                "tasks" if self.tree.uses_tasks else "None",
            ]
        )
        if self.is_stream:
            assert self.responder is not None
            stream = self._name("stream", self.responder.stream)
            self.lines.append(f"{indent}result = {stream}({self._call(root, call)}, {extra})")
            return
        in_thread = root.kind == "sync" and self.is_async and self.blocking is True
        prefix = "await " if root.kind == "async" or in_thread else ""
        if root.kind == "sync" and self._is_watched:
            self._add_watched_call("returned", root, call, indent)
            text = "returned"
        else:
            text = f"{prefix}{self._call(root, call, in_thread=in_thread)}"
        responder = self.responder
        if responder is None:
            self.lines.append(f"{indent}result = {text}")
        elif must_respond or not responder.is_plain:
            respond = self._name("respond", responder.respond)
            self.lines.append(f"{indent}result = {respond}({text}, {extra})")
        elif self.tree.uses_response or self.tree.uses_tasks:
            respond = self._name("respond", responder.respond_if_touched)
            self.lines.append(f"{indent}result = {respond}({text}, {extra})")
        else:
            self.lines.append(f"{indent}result = {text}")

    def source(self, name: str) -> str:
        """Writes the function."""
        parameters = ", ".join(f"v{index}" for index in range(self.num_inputs))
        if self.is_pass_through:
            call = self._call(self.tree.root, self._name("handler", self.tree.root.call))
            return f"def {name}({parameters}):\n    return {call}\n"
        head = "async def" if self.is_async else "def"
        self.lines.append(f"{head} {name}({parameters}):")
        if self.tree.uses_response:
            self.lines.append(f"    response = {self._name('new', injected_response)}()")
        if self.tree.uses_tasks:
            self.lines.append(f"    tasks = {self._name('new', BackgroundTasks)}()")
        body = self._add_body_with_exits if self.has_request_exits else self._add_body
        body()
        self.lines.append("    return result")
        return "\n".join(self.lines) + "\n"

    def _add_body(self) -> None:
        indent = "    "
        if not self.has_function_exits:
            self._add_calls(indent, must_respond=False)
            return
        self._add_scope("inner", indent, self._add_calls_and_respond)
        self.lines.append(f"{indent}{self._await}inner.{self._close}()")

    def _add_calls(self, indent: str, *, must_respond: bool) -> None:
        for node in self.tree.nodes:
            self._add_node(node, indent)
        self._add_result(indent, must_respond=must_respond)

    def _add_calls_and_respond(self, indent: str) -> None:
        self._add_calls(indent, must_respond=True)

    def _add_body_with_exits(self) -> None:
        """Keeps dependencies open until the response was sent, and ends them on errors."""

        def add(indent: str) -> None:
            if self.tree.is_form:
                self.lines.append(
                    f"{indent}stack.push_async_callback(v{self.tree.form.leaf}.close)"
                )
            if not self.has_function_exits:
                self._add_calls_and_respond(indent)
                return
            self._add_scope("inner", indent, self._add_calls_and_respond)
            self.lines.append(f"{indent}{self._await}inner.{self._close}()")

        self._add_scope("stack", "    ", add)
        if self.responder is None:
            # A WebSocket has no response to wait for.
            self.lines.append("    await stack.aclose()")
        else:
            self.lines.append("    result._after = stack.aclose")

    @property
    def _await(self) -> str:
        return "await " if self.is_async else ""

    @property
    def _close(self) -> str:
        return "aclose" if self.is_async else "close"

    def _add_scope(self, stack: str, indent: str, add: Callable[[str], None]) -> None:
        """Writes what runs while dependencies are open, and what throws errors into them."""
        self.lines.append(f"{indent}{stack} = {self._name('Exits', self._exits_class())}()")
        self.lines.append(f"{indent}try:")
        add(indent + "    ")
        self.lines.append(f"{indent}except BaseException as error:")
        unwind = "unwind" if self.is_async else "unwind_sync"
        self.lines.append(f"{indent}    {self._await}{stack}.{unwind}(error)")

    def _exits_class(self) -> type[Any]:
        if self.uses_stacks:
            return _Stack
        return _ThreadExits if self.blocking is True else Exits


class _Stack(AsyncExitStack):
    """Exits of all kinds: files of forms, generators that may block."""

    async def unwind(self, error: BaseException) -> NoReturn:
        """Throws an error into all and raises what comes out."""
        if not await self.__aexit__(type(error), error, error.__traceback__):
            raise error
        raise_swallowed()


class _ThreadExits(Exits):
    """Exits of plain generators that may block."""

    __slots__ = ()

    async def aclose(self) -> None:
        """Ends all in a thread."""
        await clean_up_in_threadpool(self.close)


def _leading(node: Node) -> list[str]:
    """Names of the first arguments, as far as they are the first parameters of a function.

    A call by position needs no names to be compared, and the interpreter specialises it.
    """
    if type(node.call) is not FunctionType:
        return []
    code = node.call.__code__
    parameters = code.co_varnames[: code.co_argcount]
    pairs = zip(node.arguments, parameters, strict=False)
    return [
        name
        for (name, _), parameter in itertools.takewhile(lambda pair: pair[0][0] == pair[1], pairs)
    ]


def _is_positional(call: Any, count: int) -> bool:
    """Whether the first `count` parameters can be given by position."""
    code = call.__code__
    bound = 1 if getattr(call, "__self__", None) is not None else 0
    has_rest = code.co_flags & 0x04
    return bool(code.co_argcount == count + bound and not code.co_kwonlyargcount and not has_rest)


def _generate(name: str, source: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Makes a function of its source."""
    filename = f"{GENERATED}{name} {next(_serial)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = dict(names)
    exec(compile(source, filename, "exec"), namespace)
    made: Callable[..., Coroutine[Any, Any, Any]] = namespace[name]
    return made


def compile_target(
    dependant: Dependant,
    *,
    responder: Responder | None,
    embed: bool,
    blocking: bool | None,
    strict_content_type: bool,
    path_converters: dict[str, Callable[[str], Any]],
    form_limits: dict[str, Any],
    context: EndpointContext,
    is_websocket: bool = False,
) -> Compiled:
    """Compiles the calls of a route.

    Args:
        dependant: The handler.
        responder: What makes responses; None for a WebSocket.
        embed: Whether body parameters are members of the body.
        blocking: Whether sync functions belong into a thread.
        strict_content_type: Whether a body without content type is not taken for JSON.
        path_converters: Converters of path parameters.
        form_limits: Arguments of `Request.form`.
        context: Where the handler is defined.
        is_websocket: Whether the route is a WebSocket's.
    """
    tree = Tree(dependant)
    inputs = assign_inputs(tree, embed=embed, websocket=is_websocket)
    binder = Binder(
        tree,
        num_inputs=len(inputs),
        embed=embed,
        strict_content_type=strict_content_type,
        path_converters=path_converters,
        form_limits=form_limits,
        context=context,
        is_websocket=is_websocket,
    )
    wrapper = _Wrapper(tree, num_inputs=len(inputs), responder=responder, blocking=blocking)
    is_direct = not wrapper.is_needed
    target: Callable[..., Any] = tree.root.call
    if not is_direct:
        name = getattr(tree.root.call, "__name__", type(tree.root.call).__name__)
        name = name if name.isidentifier() else "handler"
        target = _generate(f"call_{name}", wrapper.source(f"call_{name}"), wrapper.names)
    kind = Kind.INLINE
    if wrapper.is_async:
        kind = Kind.ASYNC
    elif blocking is True:
        kind = Kind.THREAD
    return Compiled(
        target=target, kind=kind, inputs=inputs, binder=binder, tree=tree, is_direct=is_direct
    )
