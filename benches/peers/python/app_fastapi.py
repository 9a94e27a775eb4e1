"""The application of the measurements on FastAPI.

Handlers and dependencies are coroutines, because nothing in them blocks, and return types are
annotated, so that pydantic writes the JSON; `sync` has the one handler that runs in a thread.
"""

import asyncio
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query
from pydantic import BaseModel


class Position(BaseModel):
    lat: float
    lng: float


class Address(BaseModel):
    city: str
    geo: Position
    street: str
    zip: str


class Order(BaseModel):
    id: int
    items: list[str]
    total: float


class User(BaseModel):
    active: bool
    address: Address
    email: str
    id: int
    name: str
    orders: list[Order]
    tags: list[str]


class Settings(BaseModel):
    max_limit: int


class Page(BaseModel):
    limit: int
    offset: int


class Reader(BaseModel):
    page: Page
    token: str


class Listing(BaseModel):
    items: list[int]
    limit: int
    offset: int
    owner: str


SETTINGS = Settings(max_limit=100)

app = FastAPI()


@app.get("/hello")
async def hello() -> dict[str, str]:
    return {"message": "hello"}


@app.get("/suspend")
async def suspend() -> dict[str, str]:
    await asyncio.sleep(0)
    return {"message": "hello"}


@app.post("/echo")
async def echo(document: dict[str, Any]) -> dict[str, Any]:
    return document


@app.post("/pydantic")
async def create_user(user: User) -> User:
    return user


async def get_settings() -> Settings:
    return SETTINGS


async def get_page(
    settings: Annotated[Settings, Depends(get_settings)],
    limit: Annotated[int, Query(ge=1)],
    offset: Annotated[int, Query(ge=0)],
) -> Page:
    return Page(limit=min(limit, settings.max_limit), offset=offset)


async def get_reader(
    page: Annotated[Page, Depends(get_page)], x_token: Annotated[str, Header()]
) -> Reader:
    return Reader(page=page, token=x_token)


@app.get("/items")
async def list_items(reader: Annotated[Reader, Depends(get_reader)]) -> Listing:
    page = reader.page
    items = list(range(page.offset, page.offset + page.limit))
    return Listing(
        items=items, limit=page.limit, offset=page.offset, owner=reader.token
    )


@app.post("/validate")
async def validate(user: User) -> dict[str, bool]:
    return {"valid": True}


sync = FastAPI()


@sync.get("/hello")
def hello_sync() -> dict[str, str]:
    return {"message": "hello"}
