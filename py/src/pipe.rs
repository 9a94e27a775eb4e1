//! The client's end of a connection in memory, as Python has it.
//!
//! Guarantee: reads and writes are done by the lane, with the next `select()`;
//! a closed pipe ends those that wait.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use justapi_core::MemoryClient;
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use crate::event_loop::EventLoop;
use crate::exchange::fail;
use crate::mount::Mount;
use crate::on_thread::OnThread;
use crate::shared::resolve;

/// Most bytes that one read gives.
const MAX_READ_BYTES: usize = 64 * 1024;

/// A client's connection to the lane of its own thread.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct Pipe(OnThread<Inner>);

/// What stays on the thread of the loop.
struct Inner {
    shared: Rc<RefCell<End>>,
    event_loop: Rc<EventLoop>,
    mount: Arc<Mount>,
    number: u64,
}

struct End {
    /// There until it is closed.
    client: Option<MemoryClient>,
    /// Reads and writes that wait.
    waiting: Vec<Waker>,
}

impl End {
    /// Polls the client; wakes the waiting task when the pipe is closed.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut MemoryClient>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(client) = &mut self.client else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let result = poll(Pin::new(client), cx);
        if result.is_pending() && !self.waiting.iter().any(|one| one.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
        result
    }
}

impl Pipe {
    pub(crate) fn new(
        client: MemoryClient,
        event_loop: &Rc<EventLoop>,
        mount: &Arc<Mount>,
        number: u64,
    ) -> Self {
        let end = End {
            client: Some(client),
            waiting: Vec::new(),
        };
        Self(OnThread::new(Inner {
            shared: Rc::new(RefCell::new(end)),
            event_loop: Rc::clone(event_loop),
            mount: Arc::clone(mount),
            number,
        }))
    }
}

#[pymethods]
impl Pipe {
    /// Reads at most `max_bytes`; nothing at the end.
    fn read<'py>(&self, py: Python<'py>, max_bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        let pipe = self.0.get()?;
        let future = pipe.event_loop.create_future(py)?;
        let waiting = future.clone().unbind();
        let shared = Rc::clone(&pipe.shared);
        pipe.event_loop.spawn(async move {
            let mut bytes = vec![0; max_bytes.min(MAX_READ_BYTES)];
            let result = poll_fn(|cx| {
                shared.borrow_mut().poll(cx, |client, cx| {
                    let mut buffer = ReadBuf::new(&mut bytes);
                    ready!(client.poll_read(cx, &mut buffer))?;
                    Poll::Ready(Ok(buffer.filled().len()))
                })
            })
            .await;
            Python::attach(|py| {
                let waiting = waiting.bind(py);
                match result {
                    Ok(length) => {
                        let bytes = PyBytes::new(py, &bytes[..length]);
                        resolve(waiting, bytes.into_any().unbind());
                    }
                    Err(error) => fail(waiting, broken(&error)),
                }
                news(py);
            });
        });
        Ok(future)
    }

    /// Writes all of `data`; waits while the server is slower.
    fn write<'py>(&self, py: Python<'py>, data: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        let pipe = self.0.get()?;
        let future = pipe.event_loop.create_future(py)?;
        let waiting = future.clone().unbind();
        let shared = Rc::clone(&pipe.shared);
        pipe.event_loop.spawn(async move {
            let mut num_written = 0;
            let mut result = Ok(());
            while num_written < data.len() && result.is_ok() {
                let rest = &data[num_written..];
                let written = poll_fn(|cx| {
                    let mut shared = shared.borrow_mut();
                    shared.poll(cx, |client, cx| client.poll_write(cx, rest))
                });
                result = written.await.map(|written| num_written += written);
            }
            Python::attach(|py| {
                let waiting = waiting.bind(py);
                match result {
                    Ok(()) => resolve(waiting, py.None()),
                    Err(error) => fail(waiting, broken(&error)),
                }
                news(py);
            });
        });
        Ok(future)
    }

    /// Leaves: the server notices a reset.
    fn close(&self) -> PyResult<()> {
        let pipe = self.0.get()?;
        pipe.mount.forget_witness(pipe.number);
        let mut end = pipe.shared.borrow_mut();
        let client = end.client.take();
        let waiting = std::mem::take(&mut end.waiting);
        drop(end);
        for waker in waiting {
            pipe.event_loop.wake(waker);
        }
        // Its end wakes the server's.
        if let Some(client) = client {
            pipe.event_loop.spawn(async move { drop(client) });
        }
        Ok(())
    }
}

fn broken(error: &io::Error) -> PyErr {
    PyConnectionError::new_err(error.to_string())
}

fn news(py: Python<'_>) {
    if let Some(event_loop) = EventLoop::current() {
        event_loop.after_call(py);
    }
}
