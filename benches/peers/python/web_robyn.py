"""What applications do besides greeting, on Robyn, whose queries are strings."""

import argparse
import sqlite3
import threading
from typing import Literal

from pydantic import BaseModel, Field
from robyn import Request, Response, Robyn


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


app = Robyn(__file__)


@app.get("/hello")
def hello(request: Request):
    return {"message": "hello"}


@app.get("/search")
def search(request: Request):
    query = request.query_params
    names = ("active", "limit", "offset", "sort")
    return Search.model_validate({name: query.get(name, None) for name in names})


@app.post("/notes")
def exercise_notes(note: Note):
    return Note(text=NOTES.exercise(note.text))


def stamp(name: str):
    """Adds a member to the chain that adds one header to every response."""

    @app.after_request()
    def stamped(response: Response):
        response.headers.set(name, "1")
        return response


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--chain", action="store_true")
    arguments, _ = parser.parse_known_args()
    if arguments.chain:
        for name in ("x-stamp-1", "x-stamp-2", "x-stamp-3"):
            stamp(name)
    app.start(host="127.0.0.1", port=arguments.port)
