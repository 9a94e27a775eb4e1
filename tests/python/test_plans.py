"""What routes compile to, and that fast path and slow path give a target the same arguments."""

from __future__ import annotations

import asyncio
import traceback
import warnings
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    RootModel,
    TypeAdapter,
    model_validator,
)

from justapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    Form,
    Header,
    HTTPException,
    JustAPIApp,
    Path,
    Query,
    Request,
    Response,
    UploadFile,
)
from justapi._asgi import AsgiExchange, _fast_arguments
from justapi._plan import Coercion, Kind, Plan, Source
from justapi.exceptions import ResponseValidationError
from justapi.responses import HTMLResponse, PlainTextResponse


class Item(BaseModel):
    name: str
    price: float = 1.0


def plan_of(endpoint: Any, path: str = "/x", method: str = "GET", **options: Any) -> Plan:
    app = JustAPIApp(openapi_url=None)
    app.api_route(path, methods=[method], **options)(endpoint)
    [plan] = app.plans()
    return plan


def test_a_plain_handler_is_its_own_target() -> None:
    def hello(): ...

    async def read(item_id: int, q: str | None = None, limit: int = 10): ...

    async def with_request(request: Request, x: Annotated[str, Header()] = "d"): ...

    def with_body(item: Item): ...

    def any_order(request: Request, b: int, item: Item, a: Annotated[str, Path()]): ...

    for endpoint, path in (
        (any_order, "/{a}"),
        (hello, "/"),
        (read, "/{item_id}"),
        (with_request, "/"),
        (with_body, "/"),
    ):
        assert plan_of(endpoint, path, "POST").target is endpoint


def test_methods_of_objects_are_their_own_targets() -> None:
    class Owner:
        def method(self, a: int): ...

    owner = Owner()
    assert plan_of(owner.method).target == owner.method


def test_wrappers_exist_only_where_they_must() -> None:
    def keyword_only(*, a: int): ...

    def mutable_default(a: Annotated[list[int], Query()] = []): ...  # noqa: B006

    async def dependency(d: Annotated[int, Depends(lambda: 1)]): ...

    assert not plan_of(keyword_only).is_direct
    assert not plan_of(mutable_default).is_direct
    assert not plan_of(dependency).is_direct


def test_kinds() -> None:
    def sync(): ...

    async def coroutine(): ...

    async def async_dependency(): ...

    def needs_async(d: Annotated[Any, Depends(async_dependency)]): ...

    def needs_sync(d: Annotated[Any, Depends(sync)]): ...

    def form(a: Annotated[str, Form()]): ...

    def stream():
        yield 1

    assert plan_of(sync).kind is Kind.INLINE
    assert plan_of(sync, blocking=True).kind is Kind.THREAD
    assert plan_of(sync, blocking=False).kind is Kind.INLINE
    assert plan_of(coroutine).kind is Kind.ASYNC
    assert plan_of(coroutine, blocking=True).kind is Kind.ASYNC
    assert plan_of(needs_async).kind is Kind.ASYNC
    assert plan_of(needs_sync).kind is Kind.INLINE
    assert plan_of(needs_sync, blocking=True).kind is Kind.THREAD
    assert plan_of(form, method="POST").kind is Kind.ASYNC
    assert plan_of(stream).kind is Kind.INLINE


def test_a_coroutine_behind_a_rearranging_wrapper_needs_no_second_coroutine() -> None:
    async def keyword_only(*, a: int):
        return a

    plan = plan_of(keyword_only)
    coroutine = plan.target(3)
    assert coroutine.cr_code is keyword_only.__code__
    assert asyncio.run(coroutine) == 3


def test_coercions() -> None:
    def handler(
        text: str,
        number: int,
        ratio: float,
        flag: bool,
        maybe: int | None = None,
        bounded: Annotated[int, Query(ge=1)] = 1,
        either: int | str = 1,
        day: date | None = None,
    ): ...

    plan = plan_of(handler)
    assert [one.coercion for one in plan.inputs] == [
        Coercion.STR,
        Coercion.INT,
        Coercion.FLOAT,
        Coercion.BOOL,
        Coercion.INT,
        Coercion.INT,
        Coercion.CALL,
        Coercion.CALL,
    ]
    assert [one.required for one in plan.inputs] == [True] * 4 + [False] * 4


def test_bounds_of_whole_numbers() -> None:
    def bounds(annotation: Any) -> tuple[int | None, int | None] | None:
        def handler(a: Any): ...

        handler.__annotations__["a"] = annotation
        [one] = plan_of(handler).inputs
        return one.bounds if one.coercion is Coercion.INT else None

    assert bounds(int) == (None, None)
    assert bounds(Annotated[int, Query(ge=1)]) == (1, None)
    assert bounds(Annotated[int, Query(gt=1, lt=9)]) == (2, 8)
    assert bounds(Annotated[int, Query(ge=3, gt=3, le=9)]) == (4, 9)
    assert bounds(Annotated[int, Query(ge=-(2**63) + 1, le=2**63 - 1)]) is not None
    for undecided in (
        Annotated[int, Query(ge=2**63)],
        Annotated[int, Query(ge=1, multiple_of=2)],
        Annotated[int, Query(ge=1, strict=True)],
        Annotated[int, Query(ge=1), AfterValidator(lambda value: value)],
        Annotated[int | None, Query(ge=1)],
        Annotated[float, Query(ge=1)],
    ):
        assert bounds(undecided) is None, undecided


def test_sources() -> None:
    def handler(
        a: str,
        q: int,
        many: Annotated[list[int], Query()],
        x_token: Annotated[str, Header()],
        x_many: Annotated[list[str], Header()],
        session: Annotated[str, Cookie()],
        item: Item,
        request: Request,
    ): ...

    plan = plan_of(handler, "/{a}", "POST")
    by_name = {one.name: one.source for one in plan.inputs}
    assert by_name == {
        "a": Source.PATH,
        "q": Source.QUERY,
        "many": Source.QUERY_LIST,
        "x-token": Source.HEADER,
        "x-many": Source.HEADER_LIST,
        "session": Source.COOKIE,
        "body": Source.BODY,
        "request": Source.EXCHANGE,
    }
    assert plan.json_body
    assert not plan.streams_body


def test_forms_are_read_by_the_slow_path() -> None:
    def handler(a: Annotated[str, Form()], file: UploadFile): ...

    plan = plan_of(handler, method="POST")
    assert plan.always_bind
    assert plan.bind_is_async
    assert plan.streams_body
    assert not plan.json_body


class Always(Item):
    model_config = ConfigDict(revalidate_instances="always")


class Doubled(Item):
    @model_validator(mode="after")
    def double(self) -> Doubled:
        self.price *= 2
        return self


class Special(Item):
    secret: int = 7


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (Item, Item(name="a")),
        (Item, {"name": "a"}),
        (Item, Special(name="a")),
        (Item, Item.model_construct(name=5)),
        (Always, Always(name="a")),
        (Doubled, Doubled(name="a")),
        (RootModel[list[int]], RootModel[list[int]]([1])),
        (list[Item], [Item(name="a"), {"name": "b"}]),
    ],
)
def test_results_are_encoded_as_if_they_were_always_validated(model: Any, value: Any) -> None:
    def handler(): ...

    handler.__annotations__["return"] = model
    encode = plan_of(handler).encode
    assert encode is not None
    again = deepcopy(value)
    adapter = TypeAdapter(model)
    with warnings.catch_warnings():
        # Of a text that is a number.
        warnings.simplefilter("ignore")
        valid = adapter.validate_python(again, from_attributes=True)
        assert encode(value) == adapter.dump_json(valid)


def test_an_instance_that_is_validated_again_may_be_refused() -> None:
    def handler() -> Always: ...

    encode = plan_of(handler).encode
    assert encode is not None
    with pytest.raises(ResponseValidationError):
        encode(Always.model_construct(name=5))


def test_encoders() -> None:
    def plain(): ...

    def modelled() -> Item: ...

    def empty(): ...

    def html(): ...

    assert plan_of(plain).encode is None
    assert plan_of(plain).media_type == "application/json"
    encode = plan_of(modelled, status_code=201).encode
    assert encode is not None
    assert encode({"name": "a", "more": 1}) == b'{"name":"a","price":1.0}'
    assert plan_of(modelled, status_code=201).status_code == 201
    nothing = plan_of(empty, status_code=204).encode
    assert nothing is not None
    assert nothing({"a": 1}) == b""
    plan = plan_of(html, response_class=HTMLResponse)
    assert plan.encode is not None
    assert plan.encode("é") == "é".encode()
    assert plan.media_type == "text/html; charset=utf-8"
    assert plan_of(html, response_class=PlainTextResponse).is_direct


def test_overrides_change_the_plans_and_tell_it() -> None:
    def real():
        return 1

    app = JustAPIApp(openapi_url=None)

    @app.get("/x")
    def handler(v: Annotated[int, Depends(real)]):
        return v

    changes: list[int] = []
    app.on_change(lambda: changes.append(1))
    [before] = app.plans()
    app.dependency_overrides[real] = lambda: 2
    [during] = app.plans()
    app.dependency_overrides.clear()
    [after] = app.plans()
    assert (before.target(), during.target(), after.target()) == (1, 2, 1)
    assert after is before
    assert len(changes) == 2
    app.get("/y")(handler)
    assert len(changes) == 3


def test_generated_functions_are_shown_to_developers_and_hidden_from_users() -> None:
    from justapi.errors import _render

    def broken():
        raise RuntimeError("in the dependency")

    def handler(d: Annotated[Any, Depends(broken)]): ...

    plan = plan_of(handler)
    with pytest.raises(RuntimeError) as caught:
        plan.target()
    shown = "".join(traceback.format_exception(caught.value))
    assert "<justapi call_handler" in shown
    assert "= call" in shown
    assert "<justapi" not in _render(caught.value)
    assert "in broken" in _render(caught.value)


@dataclass
class Ask:
    """A request for both paths."""

    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    path_params: tuple[tuple[str, str], ...] = ()

    def exchange(self) -> AsgiExchange:
        async def receive() -> Any:
            raise AssertionError("nothing has to be received")

        async def send(message: Any) -> None:
            raise AssertionError("nothing has to be sent")

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/x",
            "query_string": self.query,
            "headers": list(self.headers),
            "path_params": dict(self.path_params),
        }
        return AsgiExchange(scope, receive, send)


JSON = (b"content-type", b"application/json")


def many(
    a: str,
    n: int,
    flag: bool = False,
    ratio: float = 0.5,
    tags: Annotated[list[str], Query()] = ["x"],  # noqa: B006
    numbers: Annotated[set[int] | None, Query()] = None,
    x_token: Annotated[str | None, Header()] = None,
    x_many: Annotated[list[int] | None, Header()] = None,
    session: Annotated[UUID | None, Cookie()] = None,
): ...


def one_body(item: Item): ...


def two_bodies(item: Item, other: Annotated[int, Body()], note: str | None = None): ...


def optional_body(item: Item | None = None): ...


@pytest.mark.parametrize(
    ("endpoint", "ask"),
    [
        (many, Ask(b"n=3", path_params=(("a", "v"),))),
        (
            many,
            Ask(
                b"n=-3&flag=yes&ratio=1e3&tags=a&tags=b&numbers=1&numbers=1&numbers=2",
                ((b"x-token", b"caf\xe9"), (b"x-many", b"1"), (b"x-many", b"2")),
                path_params=(("a", "v"),),
            ),
        ),
        (
            many,
            Ask(
                b"n=1&n=2&flag=0",
                (
                    (b"x-token", b"first"),
                    (b"x-token", b"second"),
                    (b"cookie", b"session=00000000-0000-0000-0000-000000000005; session2=4"),
                ),
                path_params=(("a", "v"),),
            ),
        ),
        (one_body, Ask(headers=(JSON,), body=b'{"name": "a", "price": "2.5"}')),
        (two_bodies, Ask(headers=(JSON,), body=b'{"item": {"name": "a"}, "other": "7"}')),
        (two_bodies, Ask(b"note=x", (JSON,), b'{"other": 7, "item": {"name": "b", "price": 1}}')),
        (optional_body, Ask(headers=(JSON,), body=b"null")),
        (optional_body, Ask()),
    ],
)
def test_both_paths_give_the_same_arguments(endpoint: Any, ask: Ask) -> None:
    plan = plan_of(endpoint, "/{a}" if endpoint is many else "/x", "POST")
    fast = _fast_arguments(plan, ask.exchange(), ask.body)
    slow = plan.bind(ask.exchange(), ask.body)
    calls: list[Any] = []

    def record(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    # What reaches the handler is what counts; inputs may still stand for a default.
    record.__signature__ = None  # type: ignore[attr-defined]
    if plan.is_direct:
        assert list(slow) == fast
    else:
        names = plan.target.__globals__
        handler = next(name for name, value in names.items() if value is endpoint)
        names[handler] = record
        plan.target(*fast)
        plan.target(*slow)
        assert calls[0] == calls[1]


def test_a_mutable_default_is_made_for_each_request() -> None:
    seen: list[list[str]] = []

    def handler(tags: Annotated[list[str], Query()] = ["x"]):  # noqa: B006
        seen.append(tags)
        tags.append("changed")

    plan = plan_of(handler)
    for _ in range(2):
        plan.target(*_fast_arguments(plan, Ask().exchange(), b""))
        plan.target(*plan.bind(Ask().exchange(), b""))
    assert seen == [["x", "changed"]] * 4
    assert len({id(tags) for tags in seen}) == 4


def test_path_converters_are_told_and_decide_on_404() -> None:
    def handler(number: int): ...

    plan = plan_of(handler, "/{number:int}")
    assert plan.path_converters["number"]("5") == 5
    with pytest.raises(ValueError, match="does not match"):
        plan.path_converters["number"]("x")
    with pytest.raises(Exception, match="404"):
        plan.bind(Ask(path_params=(("number", "x"),)).exchange(), b"")
    assert not plan.always_bind

    def ignores(): ...

    assert plan_of(ignores, "/{number:int}").always_bind


def test_blocking_moves_sync_calls_of_async_wrappers_into_threads() -> None:
    import threading

    threads: list[threading.Thread] = []

    def sync_dependency():
        threads.append(threading.current_thread())
        yield 1
        threads.append(threading.current_thread())

    async def async_dependency(): ...

    def handler(
        a: Annotated[Any, Depends(sync_dependency)], b: Annotated[Any, Depends(async_dependency)]
    ):
        threads.append(threading.current_thread())

    for blocking in (True, None):
        threads.clear()

        async def run(plan: Plan) -> None:
            response = await plan.target()
            await response._after()

        asyncio.run(run(plan_of(handler, blocking=blocking)))
        in_main = [thread is threading.main_thread() for thread in threads]
        assert in_main == [blocking is None] * 3


def test_what_is_raised_after_the_response_is_not_lost() -> None:
    def dependency():
        yield 1
        raise RuntimeError("in the exit")

    def handler(d: Annotated[int, Depends(dependency)]):
        return d

    response = plan_of(handler).target()
    assert response.body == b"1"
    with pytest.raises(RuntimeError, match="in the exit"):
        asyncio.run(response._after())


def test_exceptions_go_through_the_plan() -> None:
    app = JustAPIApp(openapi_url=None)

    @app.exception_handler(KeyError)
    def key_error(request: Request, exc: KeyError):
        return PlainTextResponse(request.url.path, 409)

    @app.get("/x")
    def handler(): ...

    [plan] = app.plans()
    exchange = Ask().exchange()
    exchange.scope |= {"scheme": "http", "server": ("t", 80)}
    assert plan.fail(exchange, KeyError("x")).status_code == 409
    assert plan.fail(exchange, HTTPException(404)).status_code == 404
    assert plan.fail(exchange, SystemExit(3)).status_code == 500


def test_unrouted_requests_are_answered_by_the_application_when_it_has_its_own_words() -> None:
    plain = JustAPIApp()
    assert not plain.refuses_by_itself
    assert JustAPIApp(error_format="fastapi").refuses_by_itself
    plain.add_exception_handler(404, lambda request, exc: PlainTextResponse("nothing here", 404))
    assert plain.refuses_by_itself
    assert plain.refuse(Ask().exchange(), 404).body == b"nothing here"
    refused = plain.refuse(Ask().exchange(), 405, {"Allow": "GET"})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


def test_routes_of_included_routers_keep_their_options() -> None:
    router = APIRouter(prefix="/a", tags=["r"], responses={400: {}}, deprecated=True)

    @router.get("/b", tags=["own"], responses={404: {}}, blocking=True, status_code=201)
    def handler(response: Response, tasks: BackgroundTasks): ...

    app = JustAPIApp(openapi_url=None, responses={500: {}})
    app.include_router(router, prefix="/v1", tags=["include"], include_in_schema=False)
    [route] = app.routes
    assert (route.path, route.tags) == ("/v1/a/b", ["include", "r", "own"])
    assert set(route.responses) == {500, 400, 404}
    assert (route.deprecated, route.include_in_schema, route.status_code) == (True, False, 201)
    assert app.plans()[0].kind is Kind.THREAD
