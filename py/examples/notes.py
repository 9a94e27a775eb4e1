"""Notes in memory: models, dependencies, errors and a background task.

Run it: `justapi serve notes:app`, then look at `/docs`. With one worker only: each has a memory of
its own.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from pydantic import BaseModel, Field

from justapi import (
    APIRouter,
    BackgroundTasks,
    Depends,
    Header,
    HTTPException,
    JustAPI,
    Path,
    Query,
    Request,
)

MAX_NOTES = 1000


class NewNote(BaseModel):
    """What a client sends."""

    title: str = Field(min_length=1, max_length=100)
    text: str = Field("", max_length=10_000)
    tags: list[str] = Field(default_factory=list, max_length=20)


class Note(NewNote):
    """What a client gets."""

    id: int


def problem(status: int, description: str) -> dict[int | str, dict[str, Any]]:
    """Describes a refusal: a problem document (RFC 9457)."""
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "status": {"const": status},
            "detail": {"type": "string"},
        },
        "required": ["title", "status"],
    }
    content = {"application/problem+json": {"schema": schema}}
    return {status: {"description": description, "content": content}}


class Notes:
    """All notes, newest last."""

    def __init__(self) -> None:
        self._notes: dict[int, Note] = {}
        self._next_id = 1

    def add(self, new: NewNote) -> Note:
        if len(self._notes) >= MAX_NOTES:
            raise HTTPException(507, f"there are {MAX_NOTES} notes already")
        note = Note(id=self._next_id, **new.model_dump())
        self._next_id += 1
        self._notes[note.id] = note
        return note

    def find(self, note_id: int) -> Note:
        note = self._notes.get(note_id)
        if note is None:
            raise HTTPException(404, f"there is no note {note_id}")
        return note

    def remove(self, note_id: int) -> None:
        self.find(note_id)
        del self._notes[note_id]

    def tagged(self, tag: str | None) -> list[Note]:
        return [note for note in self._notes.values() if tag is None or tag in note.tags]


@asynccontextmanager
async def lifespan(app: JustAPI) -> AsyncIterator[None]:
    app.state.notes = Notes()
    yield


def notes_of(request: Request) -> Notes:
    notes: Notes = request.app.state.notes
    return notes


NotesOf = Annotated[Notes, Depends(notes_of)]
NOT_FOUND = problem(404, "There is no such note")
NoteId = Annotated[int, Path(ge=1, le=2**53 - 1)]
router = APIRouter(prefix="/notes", tags=["notes"])
app = JustAPI(title="Notes", lifespan=lifespan)


@router.get("")
def list_notes(
    notes: NotesOf,
    tag: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> list[Note]:
    return notes.tagged(tag)[-limit:]


@router.post(
    "",
    status_code=201,
    responses=problem(507, "There are too many notes") | problem(400, "The body is no text"),
)
def add_note(
    new: NewNote,
    notes: NotesOf,
    background: BackgroundTasks,
    user_agent: Annotated[str | None, Header()] = None,
) -> Note:
    note = notes.add(new)
    background.add_task(logging.info, "note %d came from %s", note.id, user_agent)
    return note


@router.get("/{note_id}", responses=NOT_FOUND)
async def read_note(note_id: NoteId, notes: NotesOf) -> Note:
    return notes.find(note_id)


@router.delete("/{note_id}", status_code=204, responses=NOT_FOUND)
async def remove_note(note_id: NoteId, notes: NotesOf) -> None:
    notes.remove(note_id)


app.include_router(router)
