"""The application of the measurements on justapi.

`app` is `app_fastapi.app` but for the import and for return types of plain dicts, which FastAPI is
faster with and justapi has no use for. `sync` has the same routes with handlers that are not
coroutines, as fits where nothing waits; `native` is validated without Python.
"""

import asyncio
import time
from typing import Annotated, Any

import msgspec
from justapi import Depends, Header, JustAPIApp, Query
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


class PositionStruct(msgspec.Struct):
    lat: float
    lng: float


class AddressStruct(msgspec.Struct):
    city: str
    geo: PositionStruct
    street: str
    zip: str


class OrderStruct(msgspec.Struct):
    id: int
    items: list[str]
    total: float


class UserStruct(msgspec.Struct):
    active: bool
    address: AddressStruct
    email: str
    id: int
    name: str
    orders: list[OrderStruct]
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

app = JustAPIApp()


@app.get("/hello")
async def hello():
    return {"message": "hello"}


@app.get("/suspend")
async def suspend():
    await asyncio.sleep(0)
    return {"message": "hello"}


@app.post("/echo")
async def echo(document: dict[str, Any]):
    return document


@app.post("/pydantic")
async def create_user(user: User) -> User:
    return user


@app.post("/msgspec")
async def create_user_struct(user: UserStruct) -> UserStruct:
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


sync = JustAPIApp()


@sync.get("/hello")
def hello_sync():
    return {"message": "hello"}


@sync.get("/block")
def block():
    time.sleep(0.005)
    return {"message": "slept"}


@sync.post("/echo")
def echo_sync(document: dict[str, Any]):
    return document


@sync.post("/pydantic")
def create_user_sync(user: User) -> User:
    return user


@sync.post("/msgspec")
def create_user_struct_sync(user: UserStruct) -> UserStruct:
    return user


def get_settings_sync() -> Settings:
    return SETTINGS


def get_page_sync(
    settings: Annotated[Settings, Depends(get_settings_sync)],
    limit: Annotated[int, Query(ge=1)],
    offset: Annotated[int, Query(ge=0)],
) -> Page:
    return Page(limit=min(limit, settings.max_limit), offset=offset)


def get_reader_sync(
    page: Annotated[Page, Depends(get_page_sync)], x_token: Annotated[str, Header()]
) -> Reader:
    return Reader(page=page, token=x_token)


@sync.get("/items")
def list_items_sync(reader: Annotated[Reader, Depends(get_reader_sync)]) -> Listing:
    page = reader.page
    items = list(range(page.offset, page.offset + page.limit))
    return Listing(
        items=items, limit=page.limit, offset=page.offset, owner=reader.token
    )


native = JustAPIApp()


@native.post("/validate", native=True, schema=User)
def validate() -> dict[str, bool]:
    return {"valid": True}
