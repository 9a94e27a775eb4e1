"""The application of the measurements on Robyn."""

import argparse

from pydantic import BaseModel
from robyn import Request, Robyn


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


app = Robyn(__file__)


@app.get("/hello")
def hello(request: Request):
    return {"message": "hello"}


@app.post("/pydantic")
def create_user(user: User):
    return user


@app.post("/validate")
def validate(user: User):
    return {"valid": True}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    arguments, _ = parser.parse_known_args()
    app.start(host="127.0.0.1", port=arguments.port)
