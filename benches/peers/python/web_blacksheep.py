"""What applications do besides greeting, on BlackSheep, which binds pydantic models."""

import asyncio
import sqlite3
import threading
from typing import Any, Literal

from blacksheep import Application, FromJSON, FromQuery, Request, Response, Router, json
from pydantic import BaseModel, Field


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
    limit: int = Field(ge=1, le=100)
    offset: int = Field(ge=0)
    sort: Literal["name", "age"]


def stamp(name: bytes) -> Any:
    """Makes a middleware that adds one header to every response."""

    async def middleware(request: Request, handler: Any) -> Response:
        response: Response = await handler(request)
        response.headers.add(name, b"1")
        return response

    return middleware


async def hello() -> Response:
    return json({"message": "hello"})


async def search(
    limit: FromQuery[int],
    offset: FromQuery[int],
    sort: FromQuery[str],
    active: FromQuery[bool],
) -> Response:
    found = Search(
        active=active.value, limit=limit.value, offset=offset.value, sort=sort.value
    )
    return json(found.model_dump())


async def exercise_notes(note: FromJSON[Note]) -> Response:
    text = await asyncio.to_thread(lambda: NOTES.exercise(note.value.text))
    return json({"text": text})


app = Application(router=Router())
app.router.add_get("/hello", hello)
app.router.add_get("/search", search)
app.router.add_post("/notes", exercise_notes)

chain = Application(router=Router())
for number in (b"1", b"2", b"3"):
    chain.middlewares.append(stamp(b"x-stamp-" + number))
chain.router.add_get("/hello", hello)
