"""Answers: classes, statuses, more answers, callbacks, streams."""

from collections.abc import AsyncIterable, Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, HttpUrl


class Message(BaseModel):
    message: str


class Item(BaseModel):
    id: str
    value: int | None = None


class Teapot(JSONResponse):
    media_type = "application/vnd.teapot+json"

    def __init__(self, content: Any = None, status_code: int = 418, **kwargs: Any):
        super().__init__(content, status_code, **kwargs)


app = FastAPI(title="Responses", version="1")

callbacks = APIRouter()


@callbacks.post("{$callback_url}/invoices/{$request.body.id}", response_model=Message)
def invoice_notification(body: Item): ...


@app.get("/html", response_class=HTMLResponse)
def html(): ...


@app.get("/text", response_class=PlainTextResponse)
def text() -> str: ...


@app.get("/redirect", response_class=RedirectResponse)
def redirect(): ...


@app.get("/redirect-303", response_class=RedirectResponse, status_code=303)
def redirect_303(): ...


@app.get("/file", response_class=FileResponse)
def file(): ...


@app.get("/stream", response_class=StreamingResponse)
def stream(): ...


@app.get("/bare", response_class=Response)
def bare(): ...


@app.get("/teapot", response_class=Teapot, response_model=Item)
def teapot(): ...


@app.get("/annotated-json")
def annotated_json() -> JSONResponse: ...


@app.get(
    "/more/{item_id}",
    response_model=Item,
    response_description="The item",
    responses={
        404: {"model": Message, "description": "Not here"},
        302: {"description": "Moved"},
        403: {"model": Message},
        200: {
            "content": {
                "image/png": {},
                "application/json": {"example": {"id": "bar", "value": None}},
            },
            "headers": {"X-A": {"schema": {"type": "string"}}},
        },
        "5XX": {"description": "Ours"},
        "4XX": {"model": list[Message]},
        "default": {"model": Message},
    },
)
def more(item_id: str): ...


@app.get("/custom-422", responses={422: {"model": Message}})
def custom_422(a: int): ...


@app.post("/callbacks", callbacks=callbacks.routes)
def with_callbacks(item: Item, callback_url: HttpUrl | None = None): ...


@app.get("/lines")
async def lines() -> AsyncIterable[Item]:
    yield Item(id="a")


@app.get("/sync-lines")
def sync_lines() -> Iterable[dict[str, int]]:
    yield {}


@app.get("/untyped-lines")
def untyped_lines():
    yield 1


@app.get("/events", response_class=EventSourceResponse)
async def events() -> AsyncIterable[Item]:
    yield Item(id="a")


@app.get("/raw-events", response_class=EventSourceResponse)
async def raw_events() -> AsyncIterable[ServerSentEvent]:
    yield ServerSentEvent(data=1)


@app.get("/untyped-events", response_class=EventSourceResponse)
async def untyped_events():
    yield 1


@app.post(
    "/extra",
    openapi_extra={
        "x-aperture": "blue",
        "requestBody": {
            "content": {"application/json": {"schema": {"required": ["name"], "type": "object"}}},
            "required": True,
        },
        "parameters": [{"in": "query", "name": "added", "schema": {"type": "string"}}],
        "tags": ["extra"],
    },
    tags=["own"],
)
def extra(q: int = 1): ...
