"""What an application says of itself, routers, ids, webhooks and security."""

import enum
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from pydantic import BaseModel


class Tag(enum.Enum):
    users = "users"
    items = "items"


class Subscription(BaseModel):
    name: str
    fee: float = 1


def unique_id(route: APIRoute) -> str:
    return f"{route.tags[0] if route.tags else 'none'}-{route.name}"


app = FastAPI(
    title="Application",
    version="3.1.4",
    summary="Everything an application can say",
    description="# Heading\n\nText",
    terms_of_service="http://example.com/terms",
    contact={"name": "Me", "url": "http://example.com", "email": "me@example.com", "x-more": None},
    license_info={"name": "Apache 2.0", "url": "https://example.org"},
    openapi_tags=[
        {"name": "users", "description": "People"},
        {"name": "items", "externalDocs": {"description": "More", "url": "https://example.org"}},
    ],
    servers=[
        {"url": "https://stag.example.com", "description": "Staging"},
        {"url": "/api", "variables": {"port": {"default": "1", "enum": ["1", "2"]}}},
    ],
    openapi_external_docs={"url": "https://docs.example.org", "description": "All"},
    responses={400: {"description": "Bad"}},
)


class Scheme(SecurityBase):
    def __init__(self, name: str, model: dict):
        self.scheme_name = name
        self.model = model

    async def __call__(self) -> str:
        return "token"


api_key = Scheme("APIKey", {"type": "apiKey", "in": "header", "name": "x-key", "description": None})
oauth2 = Scheme(
    "OAuth2",
    {
        "type": "oauth2",
        "flows": {
            "password": {"tokenUrl": "token", "scopes": {"me": "Read me", "items": "Read items"}}
        },
    },
)


def current_user(token: Annotated[str, Security(oauth2, scopes=["base"])]):
    return token


def active_user(user: Annotated[str, Security(current_user, scopes=["me"])], verbose: bool = False):
    return user


users = APIRouter(prefix="/users", tags=[Tag.users], dependencies=[Depends(api_key)])
items = APIRouter(tags=["items"], responses={404: {"description": "Not found"}}, deprecated=True)
inner = APIRouter(prefix="/inner", tags=["inner"], generate_unique_id_function=unique_id)


@users.get("/me", summary="Who am I", tags=["more"])
def read_me(user: Annotated[str, Security(active_user, scopes=["items"])]): ...


@users.get("/all", operation_id="list_all_users", description="All of *them*")
def read_all(user: Annotated[str, Depends(current_user)], key: str = Security(api_key)): ...


@items.get("/")
@items.post("/", deprecated=False)
def read_items(): ...


def any_method(subscription: Subscription): ...


for method in ("PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "PATCH"):
    items.add_api_route("/any", any_method, methods=[method])


@inner.get("/one/{name}", name="renamed")
def one(name: str): ...


@inner.get("/hidden", include_in_schema=False)
def hidden(subscription: Subscription): ...


items.include_router(inner, prefix="/nested", dependencies=[Depends(current_user)])
app.include_router(users)
app.include_router(items, prefix="/items", responses={418: {"description": "Teapot"}})
app.include_router(items, prefix="/again", tags=["again"], include_in_schema=False)


@app.webhooks.post("new-subscription")
def new_subscription(body: Subscription): ...


class Handler:
    """A class that handles."""

    def __call__(self, q: int = 0):
        """Handles."""


app.add_api_route("/callable", Handler(), name="handler")


@app.get("/x", responses={400: {"description": "Worse"}})
def x(): ...
