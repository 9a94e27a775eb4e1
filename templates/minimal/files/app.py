"""The application. `justapi dev` serves it, and `/docs` describes it."""

from typing import Annotated

from justapi import JustAPI, Query
from pydantic import BaseModel, Field


class Order(BaseModel):
    item: str = Field(min_length=1, max_length=40)
    count: int = Field(1, ge=1, le=100)


app = JustAPI()


@app.get("/")
def hello() -> dict[str, str]:
    return {"hello": "world"}


@app.get("/squares/{number}")
def square(number: int, times: Annotated[int, Query(ge=1, le=10)] = 1) -> dict[str, int]:
    return {"number": number, "result": number**2 * times}


@app.post("/orders", status_code=201)
def place_order(order: Order) -> Order:
    return order
