"""Makes responses of what handlers return, as the route was declared.

One `Responder` belongs to one route. The plan uses its `encode` where the result alone decides;
wrappers use `respond` where an injected response, background tasks, a response class or the end
of dependencies have a say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from justapi._fields import ModelField
from justapi._plan import Known
from justapi._shapes import output_codec
from justapi.background import BackgroundTasks
from justapi.encoders import IncEx, encode_json, encode_stream_item, jsonable_encoder
from justapi.exceptions import EndpointContext, ResponseValidationError
from justapi.responses import (
    EventSourceResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from justapi.sse import ServerSentEvent, format_sse_event

__all__ = [
    "Responder",
    "ResponseModelOptions",
    "allows_body",
    "injected_response",
    "is_response",
]

JSON_MEDIA_TYPE = "application/json"
JSON_LINES_MEDIA_TYPE = "application/jsonl"


def allows_body(status_code: int | str | None) -> bool:
    """Whether a response with this status may have a body; ranges such as `2XX` may."""
    if status_code is None or (isinstance(status_code, str) and not status_code.isdigit()):
        return True
    number = int(status_code)
    return not (number < 200 or number in (204, 205, 304))


# Classes that have one of these declare their fields: models, dataclasses, structures.
_OF_DATA = ("__pydantic_fields__", "__dataclass_fields__", "__struct_fields__")


def is_response(value: Any) -> bool:
    """Whether a handler returned a response: one of ours, or of the same shape.

    Data is none, whatever its fields are called.
    """
    return isinstance(value, Response) or (
        callable(value)
        and hasattr(value, "raw_headers")
        and hasattr(value, "status_code")
        and not any(hasattr(type(value), name) for name in _OF_DATA)
    )


class InjectedResponse(Response):
    """The response that a handler or dependency gets to set headers, cookies and status.

    Attributes:
        status_code: None until somebody sets it.
    """

    status_code: int | None  # type: ignore[assignment]


def injected_response() -> InjectedResponse:
    """Makes an empty response to be injected."""
    response = InjectedResponse()
    response.raw_headers = []
    response.status_code = None
    return response


class ResponseModelOptions:
    """How a response model is serialised.

    Attributes:
        include: Members to include; the other attributes are those of pydantic's dumps.
    """

    __slots__ = (
        "by_alias",
        "exclude",
        "exclude_defaults",
        "exclude_none",
        "exclude_unset",
        "include",
    )

    def __init__(
        self,
        *,
        include: IncEx = None,
        exclude: IncEx = None,
        by_alias: bool = True,
        exclude_unset: bool = False,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> None:
        self.include = include
        self.exclude = exclude
        self.by_alias = by_alias
        self.exclude_unset = exclude_unset
        self.exclude_defaults = exclude_defaults
        self.exclude_none = exclude_none

    def changed(self) -> dict[str, Any]:
        """Returns the options that differ from pydantic's defaults."""
        options: dict[str, Any] = {"by_alias": self.by_alias}
        for name in ("include", "exclude", "exclude_unset", "exclude_defaults", "exclude_none"):
            value = getattr(self, name)
            if value:
                options[name] = value
        if self.include is not None:
            options["include"] = self.include
        return options


class Responder:
    """Makes responses for one route.

    Args:
        field: The response model, or None.
        options: How the model is serialised.
        response_class: The class that the user asked for, or None.
        status_code: The status that the user asked for, or None.
        context: Where the handler is defined.
        stream_field: Model of the items of a stream, or None.

    Attributes:
        encode: Makes the body of a result; None when the JSON encoder alone does it.
        known: Results that need no `encode`, or None.
        media_type: Content type of such a body.
        status_code: Its status.
        is_plain: Whether `encode` does all that there is to do for an ordinary result.
    """

    def __init__(
        self,
        *,
        field: ModelField | None,
        options: ResponseModelOptions,
        response_class: type[Response] | None,
        status_code: int | None,
        context: EndpointContext,
        stream_field: ModelField | None = None,
    ) -> None:
        self.field = field
        self.options = options
        self.response_class = response_class
        self.declared_status = status_code
        self.context = context
        self.stream_field = stream_field
        self.status_code = 200 if status_code is None else status_code
        self.media_type: str | None = JSON_MEDIA_TYPE
        self.encode: Callable[[Any], bytes] | None = None
        self.known: Known | None = None
        self.is_plain = True
        self._choose_encoder()
        self._content_type = [
            pair
            for pair in Response(media_type=self.media_type).raw_headers
            if pair[0] == b"content-type"
        ]

    def _choose_encoder(self) -> None:
        cls = self.response_class
        if cls is JSONResponse:
            # The default, said aloud.
            cls = None
        if not allows_body(self.status_code):
            self.encode = _no_body
            self.is_plain = cls is None
            if cls is not None:
                self.media_type = cls.media_type
        elif cls is None:
            if self.field is not None:
                self.encode = self._model_encoder(self.field)
        elif cls in (HTMLResponse, PlainTextResponse) and self.field is None:
            self.encode = _text_encoder(cls)
            self.media_type = f"{cls.media_type}; charset=utf-8"
        else:
            self.is_plain = False

    def _model_encoder(self, field: ModelField) -> Callable[[Any], bytes]:
        options = self.options.changed()
        if field.msgspec is not None:
            return self._msgspec_encoder(field)
        adapter = field.type_adapter
        validate = adapter.validator.validate_python
        to_json = adapter.serializer.to_json
        invalid = self._invalid
        own = _validated_class(adapter.core_schema)
        codec = None
        if options.keys() == {"by_alias"} and not field.config:
            codec = output_codec(adapter, by_alias=self.options.by_alias)
        if codec is not None or own is not None:
            self.known = Known(own, partial(to_json, **options), codec)

        def encode(value: Any) -> bytes:
            if type(value) is not own:
                try:
                    value = validate(value, from_attributes=True)
                except ValueError:
                    raise invalid(value) from None
            return to_json(value, **options)

        if codec is None:
            return encode
        encode_shaped = codec.encode

        def encode_any(value: Any) -> bytes:
            body = encode_shaped(value)
            return encode(value) if body is None else body

        return encode_any

    def _msgspec_encoder(self, field: ModelField) -> Callable[[Any], bytes]:
        assert field.msgspec is not None
        encode_struct = field.msgspec.encode
        convert = field.msgspec.convert
        annotation = field.msgspec.annotation
        invalid = self._invalid
        if not isinstance(annotation, type):
            annotation = None
        else:
            self.known = Known(annotation, encode_struct)

        def encode(value: Any) -> bytes:
            if type(value) is not annotation:
                try:
                    value = convert(value)
                except ValueError:
                    raise invalid(value) from None
            return encode_struct(value)

        return encode

    def _invalid(self, value: Any) -> ResponseValidationError:
        assert self.field is not None
        _, errors = self.field.validate(value, loc=("response",))
        return ResponseValidationError(errors, body=value, endpoint_ctx=self.context)

    def content(self, result: Any) -> Any:
        """Makes plain values of a result, for response classes that encode themselves."""
        if self.field is None:
            return jsonable_encoder(result)
        value, errors = self.field.validate(result, loc=("response",))
        if errors:
            raise ResponseValidationError(errors, body=result, endpoint_ctx=self.context)
        return self.field.serialize(value, mode="json", **self.options.changed())

    def respond(
        self,
        result: Any,
        injected: InjectedResponse | None = None,
        tasks: BackgroundTasks | None = None,
    ) -> Response:
        """Makes a response.

        Args:
            result: What the handler returned.
            injected: The response that was injected, or None.
            tasks: The background tasks that were injected, or None.

        Raises:
            ResponseValidationError: The result does not match the response model.
            ValueError: The result cannot be encoded.
        """
        if is_response(result):
            response: Response = result
            if tasks is not None and response.background is None:
                response.background = tasks
            return response
        status = injected.status_code if injected is not None else None
        if status is None:
            status = self.declared_status
        if self.is_plain:
            body = self.encode(result) if self.encode is not None else encode_json(result)
            response = self._finished(body, 200 if status is None else status, tasks)
        else:
            assert self.response_class is not None
            arguments: dict[str, Any] = {"background": tasks}
            if status is not None:
                arguments["status_code"] = status
            response = self.response_class(self.content(result), **arguments)
        return self._complete(response, injected)

    def _finished(self, body: bytes, status: int, tasks: BackgroundTasks | None) -> Response:
        """What `Response` makes of these arguments, without asking what is known."""
        if not allows_body(status):
            return Response(body, status, media_type=self.media_type, background=tasks)
        response = Response.__new__(Response)
        response.status_code = status
        response.body = body
        response.background = tasks
        response.raw_headers = [(b"content-length", b"%d" % len(body)), *self._content_type]
        return response

    @staticmethod
    def _complete(response: Response, injected: InjectedResponse | None) -> Response:
        if not response.streaming and not allows_body(response.status_code):
            response.body = b""
        if injected is not None:
            response.raw_headers.extend(injected.raw_headers)
        return response

    def respond_if_touched(
        self,
        result: Any,
        injected: InjectedResponse | None = None,
        tasks: BackgroundTasks | None = None,
    ) -> Any:
        """Makes a response only if anybody has used what was injected."""
        if (injected is None or (injected.status_code is None and not injected.raw_headers)) and (
            tasks is None or not tasks.tasks
        ):
            return result
        return self.respond(result, injected, tasks)

    def stream(
        self,
        items: Any,
        injected: InjectedResponse | None = None,
        tasks: BackgroundTasks | None = None,
    ) -> Response:
        """Makes a streaming response of the generator that a handler is.

        The items become JSON lines, events for `EventSourceResponse`, or what another response
        class makes of them.
        """
        status = injected.status_code if injected is not None else None
        if status is None:
            status = self.declared_status
        arguments: dict[str, Any] = {"background": tasks}
        if status is not None:
            arguments["status_code"] = status
        cls = self.response_class
        response: Response
        if cls is None:
            response = StreamingResponse(
                _mapped(items, self._json_line), media_type=JSON_LINES_MEDIA_TYPE, **arguments
            )
        elif issubclass(cls, EventSourceResponse):
            response = cls(_mapped(items, self._event), **arguments)
        else:
            response = cls(_mapped(items, None), **arguments)
        return self._complete(response, injected)

    def _encode_item(self, item: Any) -> bytes:
        if self.stream_field is None:
            return encode_stream_item(item)
        value, errors = self.stream_field.validate(item, loc=("response",))
        if errors:
            raise ResponseValidationError(errors, body=item, endpoint_ctx=self.context)
        return self.stream_field.serialize_json(value, **self.options.changed())

    def _json_line(self, item: Any) -> bytes:
        return self._encode_item(item) + b"\n"

    def _event(self, item: Any) -> bytes:
        if not isinstance(item, ServerSentEvent):
            return format_sse_event(data_str=self._encode_item(item).decode())
        data = item.raw_data
        if data is None and item.data is not None:
            # A model says by itself how it becomes JSON.
            dump = getattr(item.data, "model_dump_json", None)
            data = encode_stream_item(item.data).decode() if dump is None else dump()
        return format_sse_event(
            data_str=data, event=item.event, id=item.id, retry=item.retry, comment=item.comment
        )


def _validated_class(schema: Any) -> type[Any] | None:
    """Returns the model whose instances validation would give back as they are."""
    if schema["type"] != "model" or schema.get("root_model") or schema.get("custom_init"):
        return None
    config = schema.get("config") or {}
    for place in (schema, config):
        if place.get("revalidate_instances", "never") != "never":
            return None
    cls: type[Any] = schema["cls"]
    return cls


def _no_body(_result: Any) -> bytes:
    return b""


def _text_encoder(cls: type[Response]) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        body = cls(jsonable_encoder(value)).body
        return bytes(body)

    return encode


def _mapped(items: Any, change: Callable[[Any], bytes] | None) -> Any:
    """Applies a function to each item of an iterator, sync or async, and closes it at the end."""
    if hasattr(items, "__aiter__"):
        return _mapped_async(items, change)
    if change is None:
        return items
    return _mapped_sync(items, change)


async def _mapped_async(items: Any, change: Callable[[Any], bytes] | None) -> AsyncIterator[Any]:
    try:
        async for item in items:
            yield item if change is None else change(item)
            # A generator that never waits would not let the loop see that the client has left.
            await asyncio.sleep(0)
    finally:
        close: Callable[[], Awaitable[None]] | None = getattr(items, "aclose", None)
        if close is not None:
            await close()


def _mapped_sync(items: Any, change: Callable[[Any], bytes]) -> Iterator[bytes]:
    try:
        for item in items:
            yield change(item)
    finally:
        close: Callable[[], None] | None = getattr(items, "close", None)
        if close is not None:
            close()
