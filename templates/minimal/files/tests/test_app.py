from collections.abc import Iterator

import pytest
from justapi.testclient import TestClient

from app import app


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def test_hello(client: TestClient) -> None:
    assert client.get("/").json() == {"hello": "world"}


def test_path_and_query_are_typed(client: TestClient) -> None:
    assert client.get("/squares/3?times=2").json() == {"number": 3, "result": 18}
    assert client.get("/squares/three").status_code == 422
    assert client.get("/squares/3?times=11").status_code == 422


def test_an_order_is_checked(client: TestClient) -> None:
    answer = client.post("/orders", json={"item": "tea"})
    assert (answer.status_code, answer.json()) == (201, {"item": "tea", "count": 1})
    assert client.post("/orders", json={"item": ""}).status_code == 422
