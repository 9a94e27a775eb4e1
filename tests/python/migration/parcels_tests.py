"""The parcel service's own tests, as its authors wrote them."""

import pytest
from fastapi.testclient import TestClient
from parcels import clerk, create_app
from starlette.websockets import WebSocketDisconnect

CLERK = {"x-clerk": "Ada"}
PARCEL = {"receiver": "Grace", "weight_kg": 2}


@pytest.fixture
def app():
    return create_app()


@pytest.fixture
def client(app):
    with TestClient(app, headers=CLERK) as client:
        yield client


def test_a_parcel_is_added_and_read(app, client):
    added = client.post("/parcels/", json=PARCEL)
    assert added.status_code == 201
    assert added.json()["id"] == 1
    assert "packed_by" not in added.json()
    assert client.get("/parcels/1").json() == added.json()
    assert app.state.depot.letters == ["Grace: parcel 1 is packed"]
    assert app.state.depot.num_sessions == 0


def test_a_parcel_that_is_too_heavy_is_refused(app, client):
    answer = client.post("/parcels/", json={**PARCEL, "weight_kg": 40})
    assert answer.status_code == 422
    assert app.state.depot.parcels == {}


def test_nobody_adds_without_a_name(client):
    del client.headers["x-clerk"]
    assert client.post("/parcels/", json=PARCEL).status_code == 401


def test_a_dependency_is_replaced(app, client):
    app.dependency_overrides[clerk] = lambda: "a test"
    client.post("/parcels/", json=PARCEL)
    assert app.state.depot.parcels[1].packed_by == "a test"


def test_the_last_word_of_a_session_is_a_rollback_when_there_is_no_parcel(app, client):
    assert client.get("/parcels/9").json()["message"] == "no parcel 9"
    assert app.state.depot.history[-1] == "rollback after NoParcel"


def test_a_parcel_is_tracked(client):
    client.post("/parcels/", json=PARCEL)
    with client.websocket_connect("/parcels/1/track") as socket:
        socket.send_json("where?")
        assert socket.receive_json() == {"asked": "where?", "state": "waiting"}


def test_a_socket_that_nobody_serves_is_refused(client):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/nothing"):
        pass


def test_a_label_has_a_picture(client):
    client.post("/parcels/", json=PARCEL)
    files = {"picture": ("a.png", b"\x89PNG", "image/png")}
    answer = client.put("/parcels/1/label", data={"text": "up"}, files=files)
    assert answer.json() == {"text": "up", "file": "a.png", "bytes": 4, "id": 1}


def test_the_export_is_a_stream(client):
    client.post("/parcels/", json=PARCEL)
    with client.stream("GET", "/parcels/export.csv") as answer:
        assert list(answer.iter_lines()) == ["1,Grace,2.0"]


def test_the_depot_opens_and_closes(app):
    with TestClient(app) as client:
        assert client.get("/").json()["motto"] == "It will arrive."
    assert app.state.depot.history == ["open", "closed"]
