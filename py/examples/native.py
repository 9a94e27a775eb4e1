"""Routes that are validated and answered in Rust. Run it: `justapi serve native:app`."""

from justapi import JustAPI
from justapi.schema import Field, Schema


class Order(Schema, extra="forbid"):
    """What a client orders."""

    item: str = Field(min_length=1, max_length=40)
    count: int = Field(ge=1, le=100)
    gift: bool = False


class Search(Schema):
    """What a client looks for."""

    q: str = Field(min_length=1)
    limit: int = Field(20, ge=1, le=100)


app = JustAPI(title="Native")


@app.post("/orders/check", native=True, schema=Order)
def check(order: Order) -> None: ...


@app.get("/search", native=True, query_schema=Search)
def search(query: Search) -> None: ...


@app.get("/version", native={"version": "1.0"})
def version() -> None: ...
