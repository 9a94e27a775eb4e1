"""What applications do besides greeting, on justapi: queries, a database, a chain of middleware.

`/notes` is a plain function; `chain` has three members of pure ASGI middleware. This file and that for
FastAPI differ in the import and in the name of the class.
"""

import sqlite3
import threading
from typing import Annotated, Any, Literal

from justapi import JustAPIApp, Query
from pydantic import BaseModel


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


class Note(BaseModel):
    text: str


class Search(BaseModel):
    active: bool
    limit: int
    offset: int
    sort: str


class Stamp:
    """Adds one header to every response."""

    def __init__(self, app: Any, name: bytes) -> None:
        self.app = app
        self.header = (name, b"1")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def stamped(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self.header]
            await send(message)

        await self.app(scope, receive, stamped)


app = JustAPIApp()


@app.get("/hello")
async def hello() -> dict[str, str]:
    return {"message": "hello"}


@app.get("/search")
async def search(
    limit: Annotated[int, Query(ge=1, le=100)],
    offset: Annotated[int, Query(ge=0)],
    sort: Literal["name", "age"],
    active: bool,
) -> Search:
    return Search(active=active, limit=limit, offset=offset, sort=sort)


@app.post("/notes")
def exercise_notes(note: Note) -> Note:
    return Note(text=NOTES.exercise(note.text))


chain = JustAPIApp()
for number in (b"1", b"2", b"3"):
    chain.add_middleware(Stamp, name=b"x-stamp-" + number)


@chain.get("/hello")
async def hello_in_chain() -> dict[str, str]:
    return {"message": "hello"}
