"""What a route compiles to at registration.

`_core` reads these objects once, when the routes are handed to it, and never again; the ASGI
path in `justapi._asgi` interprets the same objects. Nothing here runs for a request.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from justapi import _core
    from justapi.types import Receive, Scope, Send

__all__ = [
    "Coercion",
    "Exchange",
    "Input",
    "Kind",
    "Known",
    "NativePlan",
    "Plan",
    "Source",
]


class Source(IntEnum):
    """Where the value of an input is found."""

    PATH = 0
    QUERY = 1
    QUERY_LIST = 2
    HEADER = 3
    HEADER_LIST = 4
    COOKIE = 5
    BODY = 6
    EXCHANGE = 7


class Coercion(IntEnum):
    """How the text of an input becomes its value.

    `INT`, `FLOAT` and `BOOL` name the plain spellings that need no Python; any other spelling
    goes to `Input.convert`. So does a JSON body that `_core` does not decode itself.
    """

    STR = 0
    INT = 1
    FLOAT = 2
    BOOL = 3
    CALL = 4
    JSON = 5
    JSON_OBJECT = 6
    JSON_ARRAY = 7


class Kind(IntEnum):
    """Where and how `Plan.target` is called."""

    INLINE = 0
    ASYNC = 1
    THREAD = 2


class Exchange(Protocol):
    """One request as both paths, `_core`'s and ASGI's, present it to the Python layer."""

    context: Any
    is_outside: bool

    @property
    def scope(self) -> Scope:
        """The ASGI scope of the request, with what routing added."""

    @property
    def receive(self) -> Receive:
        """The ASGI callable that receives."""

    @property
    def send(self) -> Send:
        """The ASGI callable that sends."""


class Input:
    """One value that a plan takes out of the request.

    Attributes:
        source: Where it is found, a `Source`.
        name: Its name on the wire; header names in lower case.
        coercion: What may be done without calling `convert`, a `Coercion`.
        convert: Turns text (for lists: a list of texts; for the body: bytes; for the exchange:
            the exchange) into the value. Whatever it raises leads to `Plan.bind`.
        required: Whether its absence leads to `Plan.bind`.
        default: The value when it is absent and not required. Never copied.
        bounds: The least and the greatest number that `INT` may make; None for no bound.
        codec: Decodes the JSON bodies that need no `convert`, or None.
    """

    __slots__ = ("bounds", "codec", "coercion", "convert", "default", "name", "required", "source")

    def __init__(
        self,
        source: Source,
        name: str,
        *,
        coercion: Coercion = Coercion.CALL,
        convert: Callable[[Any], Any] | None = None,
        required: bool = True,
        default: Any = None,
        bounds: tuple[int | None, int | None] = (None, None),
        codec: _core.Codec | None = None,
    ) -> None:
        self.source: Final = source
        self.name: Final = name
        self.coercion: Final = coercion
        self.convert: Final = convert
        self.required: Final = required
        self.default: Final = default
        self.bounds: Final = bounds
        self.codec: Final = codec

    def __repr__(self) -> str:
        return f"Input({self.source.name}, {self.name!r}, {self.coercion.name})"


class Known:
    """What of a route's results is known when it is registered.

    Attributes:
        cls: Class whose own instances, not those of its subclasses, are no responses and may be
            given to `encode`, or None.
        encode: Makes the bytes of the body of such an instance; None for the plan's `encode`.
        codec: Encodes the results that need neither, or None.
    """

    __slots__ = ("cls", "codec", "encode")

    def __init__(
        self,
        cls: type[Any] | None,
        encode: Callable[[Any], bytes] | None = None,
        codec: _core.Codec | None = None,
    ) -> None:
        # A response may be any object that can be called.
        is_callable = cls is not None and any("__call__" in vars(base) for base in cls.__mro__)
        self.cls: Final = None if is_callable else cls
        self.encode: Final = encode
        self.codec: Final = codec


class NativePlan:
    """What a route does without Python.

    Attributes:
        kind: `"body"` or `"query"` (validates by `schema`), `"constant"`, `"file"`, `"redirect"`.
        schema: JSON Schema of the body as JSON text, or None.
        query_schema: JSON Schema of the query as JSON text, or None.
        status_code: Status of the answer.
        raw_headers: Header lines of the answer.
        body: Body of a constant answer.
        path: File system path of a file answer.
    """

    __slots__ = ("body", "kind", "path", "query_schema", "raw_headers", "schema", "status_code")

    def __init__(
        self,
        kind: str,
        *,
        schema: str | None = None,
        query_schema: str | None = None,
        status_code: int = 200,
        raw_headers: list[tuple[bytes, bytes]] | None = None,
        body: bytes = b"",
        path: str | None = None,
    ) -> None:
        self.kind: Final = kind
        self.schema: Final = schema
        self.query_schema: Final = query_schema
        self.status_code: Final = status_code
        self.raw_headers: Final = raw_headers if raw_headers is not None else []
        self.body: Final = body
        self.path: Final = path


class Plan:
    """A compiled route.

    Attributes:
        methods: Methods in upper case; `HEAD` comes with `GET` by itself.
        path: Pattern, with `{name}` and `{name:path}` parameters.
        name: Name of the route.
        kind: How `target` is called, a `Kind`.
        target: Called with the values of `inputs` positionally, in order.
        inputs: What to take out of the request.
        json_body: A body input wants `application/json` or a `+json` type; another or no type
            leads to `bind`.
        encode: Turns the result into the bytes of the body, or None: then plain values are
            encoded by `_core` and others are first passed through `encode_default`.
        encode_default: Makes a plain value of another object.
        known: Results that need no `encode`, or None.
        status_code: Status of an encoded result.
        media_type: Content type of an encoded result, or None for none.
        bind: The slow path: all arguments for `target`, or the response that says what is wrong.
            It may raise; that goes to `fail`. Its result is awaited when `bind_is_async`.
        bind_is_async: Whether `bind` is a coroutine function.
        always_bind: Skip the fast path; `inputs` says only how many values there are.
        streams_body: Do not collect the body before `bind` and `target`; they read it
            themselves. `bind` is then called with `b""`.
        fail: Makes a response of what was raised; may be awaitable.
        native: What the route does without Python, or None.
        path_converters: Converters for path parameters that are not texts in
            `scope["path_params"]`.
        max_body_bytes: Limit of this route's body, or None for the server's.
        blocking: What the user said about a sync handler: True for always in a thread, False for
            never, None for whatever is measured.
        endpoint: The user's function.
        route: The route that was compiled.
        is_direct: Whether `target` is the user's function itself.
    """

    __slots__ = (
        "always_bind",
        "bind",
        "bind_is_async",
        "blocking",
        "encode",
        "encode_default",
        "endpoint",
        "fail",
        "inputs",
        "is_direct",
        "json_body",
        "kind",
        "known",
        "max_body_bytes",
        "media_type",
        "methods",
        "name",
        "native",
        "path",
        "path_converters",
        "route",
        "status_code",
        "streams_body",
        "target",
    )

    methods: list[str]
    path: str
    name: str
    kind: Kind
    target: Callable[..., Any]
    inputs: list[Input]
    json_body: bool
    encode: Callable[[Any], bytes] | None
    encode_default: Callable[[Any], Any]
    known: Known | None
    status_code: int
    media_type: str | None
    bind: Callable[[Exchange, bytes], Any]
    bind_is_async: bool
    always_bind: bool
    streams_body: bool
    fail: Callable[[Exchange, BaseException], Any | Awaitable[Any]]
    native: NativePlan | None
    path_converters: dict[str, Callable[[str], Any]]
    max_body_bytes: int | None
    blocking: bool | None
    endpoint: Callable[..., Any]
    route: Any
    is_direct: bool

    def __repr__(self) -> str:
        return f"Plan({'|'.join(self.methods)} {self.path}, {self.kind.name}, {self.inputs})"
