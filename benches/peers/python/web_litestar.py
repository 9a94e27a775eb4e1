"""What applications do besides greeting, on Litestar with msgspec structs, as its users write them."""

import sqlite3
import threading
from typing import Annotated, Any, Literal

import msgspec
from litestar import Litestar, get, post
from litestar.params import Parameter


class Notes(threading.local):
    """One connection for each thread that runs handlers."""

    def __init__(self) -> None:
        self.database = sqlite3.connect("notes.sqlite", isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA synchronous = NORMAL")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"
        )

    def exercise(self, text: str) -> str:
        """Creates a note, reads, updates, reads and deletes it, in one transaction."""
        run = self.database.execute
        run("BEGIN IMMEDIATE")
        try:
            note = run("INSERT INTO notes (text) VALUES (?)", (text,)).lastrowid
            (found,) = run("SELECT text FROM notes WHERE id = ?", (note,)).fetchone()
            run("UPDATE notes SET text = ? WHERE id = ?", (found + "!", note))
            (found,) = run("SELECT text FROM notes WHERE id = ?", (note,)).fetchone()
            run("DELETE FROM notes WHERE id = ?", (note,))
        finally:
            run("COMMIT")
        return found


NOTES = Notes()


class Note(msgspec.Struct):
    text: str


class Search(msgspec.Struct):
    active: bool
    limit: int
    offset: int
    sort: str


def stamp(name: bytes) -> Any:
    """Makes a middleware that adds one header to every response."""
    header = (name, b"1")

    def middleware(app: Any) -> Any:
        async def stamping(scope: Any, receive: Any, send: Any) -> None:
            async def stamped(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], header]
                await send(message)

            await app(scope, receive, stamped)

        return stamping

    return middleware


@get("/hello")
async def hello() -> dict[str, str]:
    return {"message": "hello"}


@get("/search")
async def search(
    limit: Annotated[int, Parameter(ge=1, le=100)],
    offset: Annotated[int, Parameter(ge=0)],
    sort: Literal["name", "age"],
    active: bool,
) -> Search:
    return Search(active=active, limit=limit, offset=offset, sort=sort)


@post("/notes", sync_to_thread=True, status_code=200)
def exercise_notes(data: Note) -> Note:
    return Note(text=NOTES.exercise(data.text))


app = Litestar([hello, search, exercise_notes], openapi_config=None)
names = (b"x-stamp-1", b"x-stamp-2", b"x-stamp-3")
chain = Litestar(
    [hello], middleware=[stamp(name) for name in names], openapi_config=None
)
