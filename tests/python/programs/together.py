"""One schema for what goes in and what comes out; models of one name; ids of one's own."""

import sys
import types
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query
from pydantic import BaseModel, Field, computed_field, create_model


def unique_id(route: Any) -> str:
    return f"id-{route.name}"


app = FastAPI(
    title="Together",
    version="1",
    separate_input_output_schemas=False,
    generate_unique_id_function=unique_id,
)


class Sub(BaseModel):
    text: str | None = None


class Item(BaseModel):
    name: str
    sub: Sub = Sub()
    subs: list[Sub] = Field(default_factory=list)


class Area(BaseModel):
    side: int = 1

    @computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Holder(BaseModel):
    areas: dict[str, Area] = {}


first = create_model("Same", __module__="package.first", a=(int, 1))
second = create_model("Same", __module__="package.second", b=(str, "x"))


@app.post("/items")
def items(item: Item) -> list[Item]: ...


@app.post("/areas")
def areas(area: Area) -> Area: ...


@app.post("/holders")
def holders(holder: Holder, subs: list[Sub]) -> Holder: ...


@app.post("/same")
def same(body: first) -> second: ...


@app.get("/query")
def query(sub: Annotated[Sub, Query()]): ...
