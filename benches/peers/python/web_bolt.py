"""What applications do besides greeting, on django-bolt: one file with the settings in it.

Usage: python web_bolt.py --port PORT
"""

import argparse
import sqlite3
import threading
from typing import Annotated, Literal

import django
import msgspec
from django.conf import settings
from django.core.management import call_command

settings.configure(
    ALLOWED_HOSTS=["*"],
    BOLT_API=[f"{__name__}:api"],
    DEBUG=False,
    INSTALLED_APPS=["django_bolt"],
    LOGGING_CONFIG=None,
    ROOT_URLCONF=__name__,
    SECRET_KEY="measurements",
)
django.setup()

from django_bolt import BoltAPI

urlpatterns: list[object] = []


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
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)]
    offset: Annotated[int, msgspec.Meta(ge=0)]
    sort: Literal["name", "age"]


api = BoltAPI(enable_logging=False)


@api.get("/hello")
async def hello():
    return {"message": "hello"}


@api.get("/search")
async def search(limit: int, offset: int, sort: str, active: bool):
    # Types are coerced by the framework, which leaves bounds to the model.
    query = {"active": active, "limit": limit, "offset": offset, "sort": sort}
    return msgspec.convert(query, Search)


@api.post("/notes")
def exercise_notes(note: Note):
    return Note(text=NOTES.exercise(note.text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    call_command("runbolt", host="127.0.0.1", port=port, workers=1, no_admin=True)
