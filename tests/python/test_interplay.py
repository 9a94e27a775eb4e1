"""Other people's middleware and applications work with ours, and ours in theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import fastapi
import starlette.applications
import starlette.exceptions
import starlette.middleware.base
import starlette.middleware.gzip
import starlette.responses
import starlette.routing

from justapi import Depends, HTTPException, JustAPIApp, Request
from justapi.middleware.base import BaseHTTPMiddleware
from justapi.responses import StreamingResponse
from twins import answers, get, post


def make_app(**options: Any) -> JustAPIApp:
    app = JustAPIApp(error_format="fastapi", **options)

    @app.get("/hello/{name}")
    async def hello(name: str, request: Request):
        return {"name": name, "root": request.scope["root_path"]}

    @app.get("/large")
    async def large():
        return "x" * 2000

    @app.get("/stream")
    async def stream():
        async def parts():
            for number in range(3):
                yield str(number)
                await asyncio.sleep(0)

        return StreamingResponse(parts())

    @app.post("/echo")
    async def echo(item: dict[str, Any]):
        return item

    @app.get("/error")
    async def error():
        raise HTTPException(418, "teapot")

    return app


def test_middleware_of_starlette() -> None:
    class Stamp(starlette.middleware.base.BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            body = await request.body()
            response = await call_next(request)
            response.headers["x-size"] = str(len(body))
            return response

    app = make_app()
    app.add_middleware(Stamp)
    app.add_middleware(starlette.middleware.gzip.GZipMiddleware, minimum_size=1000)
    found = answers(
        app,
        get("/large", headers={"accept-encoding": "gzip"}),
        post("/echo", json={"a": 1}),
        get("/stream"),
        get("/error"),
        get("/nothing"),
    )
    assert [answer.status for answer in found] == [200, 200, 200, 418, 404]
    assert dict(found[0].headers)["content-encoding"] == "gzip"
    assert (found[1].body, dict(found[1].headers)["x-size"]) == ({"a": 1}, "7")
    assert found[2].body == b"012"


def test_middleware_of_ours_around_starlette() -> None:
    async def home(request: Any) -> Any:
        return starlette.responses.PlainTextResponse("home")

    async def dispatch(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-ours"] = request.url.path
        return response

    app = BaseHTTPMiddleware(
        starlette.applications.Starlette(routes=[starlette.routing.Route("/", home)]), dispatch
    )
    [answer] = answers(app, get("/"))
    assert (answer.body, dict(answer.headers)["x-ours"]) == (b"home", "/")


def test_applications_inside_of_each_other() -> None:
    theirs = fastapi.FastAPI()

    @theirs.get("/x")
    def x(request: fastapi.Request):
        return request.scope["root_path"]

    @theirs.get("/url")
    def url(request: fastapi.Request):
        return str(request.url_for("x"))

    ours = make_app()
    ours.mount("/fast", theirs)
    outer = starlette.applications.Starlette(routes=[starlette.routing.Mount("/ours", app=ours)])
    found = answers(
        outer,
        get("/ours/hello/a%2Fb"),
        get("/ours/fast/x"),
        get("/ours/nothing"),
        get("/ours/fast/nothing"),
        get("/ours/error"),
        get("/ours/hello/a/"),
    )
    assert [answer.status for answer in found] == [200, 200, 404, 404, 418, 307]
    assert found[0].body == {"name": "a/b", "root": "/ours"}
    assert found[1].body == "/ours/fast"
    assert dict(found[5].headers)["location"] == "/ours/hello/a"
    assert answers(ours, get("/fast/url"))[0].body == "http://test/fast/x"


def test_responses_of_starlette_may_be_returned() -> None:
    app = make_app()
    log: list[str] = []

    def resource():
        yield 1
        log.append("ended")

    @app.get("/theirs")
    async def theirs():
        return starlette.responses.JSONResponse({"a": 1}, status_code=201, headers={"x": "y"})

    @app.get("/theirs-with-resource", dependencies=[Depends(resource)])
    def with_resource():
        return starlette.responses.PlainTextResponse("text")

    found = answers(app, get("/theirs"), get("/theirs-with-resource"))
    assert (found[0].status, found[0].body) == (201, {"a": 1})
    assert found[1].body == b"text"
    assert log == ["ended"]


def test_exceptions_of_starlette_are_understood() -> None:
    app = make_app()

    @app.get("/theirs")
    async def theirs():
        raise starlette.exceptions.HTTPException(403, "theirs")

    [answer] = answers(app, get("/theirs"))
    assert (answer.status, answer.body) == (403, {"detail": "theirs"})

    async def handler(request: Request, exc: Any) -> Any:
        return starlette.responses.PlainTextResponse(f"handled {exc.status_code}", 400)

    handled = make_app(exception_handlers={starlette.exceptions.HTTPException: handler})
    handled.get("/theirs")(theirs)
    bodies = [answer.body for answer in answers(handled, get("/theirs"), get("/nothing"))]
    assert bodies == [b"handled 403", b"handled 404"]
