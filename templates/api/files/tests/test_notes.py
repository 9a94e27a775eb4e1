import pytest
from justapi.testclient import TestClient

from conftest import SignIn


@pytest.fixture
def ada(sign_in: SignIn) -> dict[str, str]:
    return sign_in("ada@example.com")


def add(client: TestClient, headers: dict[str, str], title: str) -> int:
    answer = client.post("/notes", json={"title": title}, headers=headers)
    assert answer.status_code == 201
    note_id: int = answer.json()["id"]
    return note_id


def test_a_note_lives_and_ends(client: TestClient, ada: dict[str, str]) -> None:
    path = f"/notes/{add(client, ada, 'tea')}"
    note = client.get(path, headers=ada).json()
    assert (note["title"], note["text"]) == ("tea", "")
    assert note["created_at"].endswith("Z")
    new = {"title": "tea", "text": "green"}
    assert client.put(path, json=new, headers=ada).json() == note | new
    assert client.delete(path, headers=ada).status_code == 204
    assert client.get(path, headers=ada).status_code == 404


def test_a_list_comes_in_pages(client: TestClient, ada: dict[str, str]) -> None:
    for title in "abc":
        add(client, ada, title)
    first = client.get("/notes?limit=2", headers=ada).json()
    assert [note["title"] for note in first] == ["a", "b"]
    second = client.get(f"/notes?limit=2&after={first[-1]['id']}", headers=ada).json()
    assert [note["title"] for note in second] == ["c"]


def test_notes_are_seen_by_their_account_only(
    client: TestClient, ada: dict[str, str], sign_in: SignIn
) -> None:
    path = f"/notes/{add(client, ada, 'secret')}"
    bob = sign_in("bob@example.com")
    assert client.get("/notes", headers=bob).json() == []
    assert client.get(path, headers=bob).status_code == 404
    assert client.put(path, json={"title": "mine"}, headers=bob).status_code == 404
    assert client.delete(path, headers=bob).status_code == 404
    assert client.get(path).status_code == 401


@pytest.mark.parametrize("path", ["/notes/0", "/notes/x", "/notes/99999999999999999999"])
def test_ids_are_checked(client: TestClient, ada: dict[str, str], path: str) -> None:
    assert client.get(path, headers=ada).status_code == 422
