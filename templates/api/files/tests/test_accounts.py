import pytest
from justapi.testclient import TestClient
from sqlalchemy import create_engine, text

from conftest import SignIn

ADA = {"email": "ada@example.com", "password": "correct horse battery"}


def test_an_account_is_made_once(client: TestClient) -> None:
    answer = client.post("/accounts", json=ADA | {"email": "Ada@Example.com"})
    assert answer.status_code == 201
    assert answer.json()["email"] == "ada@example.com"
    assert "password" not in answer.text
    assert client.post("/accounts", json=ADA).status_code == 409


@pytest.mark.parametrize(
    "wrong", [{"email": "ada"}, {"password": "short"}, {"password": "long" * 100}]
)
def test_credentials_are_checked(client: TestClient, wrong: dict[str, str]) -> None:
    assert client.post("/accounts", json=ADA | wrong).status_code == 422


def test_a_token_says_who_asks(client: TestClient, sign_in: SignIn) -> None:
    headers = sign_in("ada@example.com")
    assert client.get("/accounts/me", headers=headers).json()["email"] == "ada@example.com"


@pytest.mark.parametrize("wrong", [{"email": "bob@example.com"}, {"password": "wrong password"}])
def test_nobody_signs_in_with(client: TestClient, sign_in: SignIn, wrong: dict[str, str]) -> None:
    sign_in("ada@example.com")
    answer = client.post("/tokens", json=ADA | wrong)
    assert (answer.status_code, answer.json()["detail"]) == (401, "address or password is wrong")


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer x"}, {"authorization": "Basic x"}]
)
def test_no_token_no_answer(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/accounts/me", headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_signing_out_ends_a_token(client: TestClient, sign_in: SignIn) -> None:
    headers = sign_in("ada@example.com")
    assert client.delete("/tokens/current", headers=headers).status_code == 204
    assert client.get("/accounts/me", headers=headers).status_code == 401


def test_tokens_expire(client: TestClient, sign_in: SignIn, database: str) -> None:
    headers = sign_in("ada@example.com")
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(text("UPDATE tokens SET expires_at = '2001-01-01 00:00:00'"))
    engine.dispose()
    assert client.get("/accounts/me", headers=headers).status_code == 401


def test_the_document_names_the_scheme(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["Bearer"]["scheme"] == "bearer"
    assert document["paths"]["/notes"]["get"]["security"] == [{"Bearer": []}]
