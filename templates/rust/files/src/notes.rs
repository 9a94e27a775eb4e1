//! Notes in memory, and the routes to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justapi_core::{Error, Problem, Request, Response, Router, StatusCode, inline};
use serde::{Deserialize, Serialize};

/// More would fill the memory of a server that anybody may write to.
const MAX_NOTES: usize = 10_000;

/// What a client sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewNote {
    title: String,
    #[serde(default)]
    text: String,
}

/// What a client gets.
#[derive(Debug, Clone, Serialize)]
struct Note {
    id: u64,
    title: String,
    text: String,
}

/// All notes, oldest first. Lanes are threads, so they share it behind a lock.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<BTreeMap<u64, Note>>);

impl Notes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Note>> {
        // Nothing below panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, new: NewNote) -> Result<Note, Problem> {
        if new.title.is_empty() || new.title.len() > 100 {
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY);
            return Err(problem.with_detail("a title has 1 to 100 bytes"));
        }
        let mut notes = self.lock();
        if notes.len() >= MAX_NOTES {
            return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE));
        }
        let id = notes.last_key_value().map_or(1, |(id, _)| id + 1);
        let note = Note {
            id,
            title: new.title,
            text: new.text,
        };
        notes.insert(id, note.clone());
        Ok(note)
    }
}

pub(crate) fn routes(notes: &Arc<Notes>) -> Result<Router, Error> {
    let (list, add, read, remove) = (
        Arc::clone(notes),
        Arc::clone(notes),
        Arc::clone(notes),
        Arc::clone(notes),
    );
    Router::new()
        .get(
            "/notes",
            inline(move |_: Request| Response::json(&list.lock().values().collect::<Vec<_>>())),
        )?
        .post("/notes", move |request: Request| {
            let notes = Arc::clone(&add);
            async move {
                let new = request.json().await;
                let new = new.map_err(|error| Problem::from(&error))?;
                let note = notes.add(new)?;
                Ok::<_, Problem>(Response::json(&note).with_status(StatusCode::CREATED))
            }
        })?
        .get(
            "/notes/{id:uint}",
            inline(move |request: Request| {
                let notes = read.lock();
                let note = id_of(&request).and_then(|id| notes.get(&id));
                note.map(Response::json).ok_or_else(missing)
            }),
        )?
        .delete(
            "/notes/{id:uint}",
            inline(move |request: Request| {
                let removed = id_of(&request).and_then(|id| remove.lock().remove(&id));
                removed.map(|_| StatusCode::NO_CONTENT).ok_or_else(missing)
            }),
        )
}

/// None for a number that no note can have.
fn id_of(request: &Request) -> Option<u64> {
    request.param("id")?.parse().ok()
}

fn missing() -> Problem {
    Problem::new(StatusCode::NOT_FOUND).with_detail("there is no such note")
}
