"""The extension module: core's lane with Python handlers."""

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, final

__all__ = [
    "VERSION",
    "Codec",
    "Exchange",
    "Lane",
    "NativeRoute",
    "Pipe",
    "Seat",
    "Socket",
    "encode_json",
    "end_with_parent",
    "limit_waiting_calls",
    "listen_for_crashes",
]

VERSION: Final[str]
"""Version of the package and of the program `justapi` that belongs to it."""

def encode_json(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Encodes a value as JSON without white space.

    Args:
        value: Dicts, lists, tuples, text, numbers, booleans and None.
        default: Makes something plainer of any other object.

    Raises:
        TypeError: An object cannot be encoded.
        ValueError: A number is not finite.
        RecursionError: The value is nested too deeply, or holds itself.
    """

def end_with_parent(parent: int) -> None:
    """Has this process asked to end once its parent has.

    Args:
        parent: Process id of the parent.

    Raises:
        RuntimeError: It has ended already.
    """

def listen_for_crashes(descriptor: int) -> None:
    """Has a crash of this process told, with the route that the thread ran last.

    What was done about crashes before is done after that. Only the first call counts.

    Args:
        descriptor: Gets `{"ran":"GET /path"}` on a line.

    Raises:
        OSError: The descriptor is none.
    """

def limit_waiting_calls(number: int) -> None:
    """Limits how many calls of blocking handlers wait for a thread in this process.

    Requests beyond it are answered 503. There are 1000 unless this is called.

    Args:
        number: How many may wait while all threads are busy.
    """

@final
class Exchange:
    """One request that a lane answers, as ASGI has it."""

    context: Any
    """Free for the Python layer."""

    is_outside: bool
    """Whether no middleware has to do with the answer."""

    @property
    def scope(self) -> dict[str, Any]:
        """The ASGI scope; made when it is first asked for."""

    @property
    def witness(self) -> Any:
        """Who watches the request, a `justapi._lane_server.Witness`; None for most."""

    def receive(self) -> Awaitable[dict[str, Any]]:
        """The next message: a piece of the body, or the disconnect."""

    def send(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        """Sends a part of the answer; waits while the client is slower.

        Raises:
            OSError: The client has left.
            RuntimeError: The message does not fit here.
            ValueError: A status or a header is not valid.
        """

@final
class Socket:
    """One WebSocket that a lane has, as ASGI has it."""

    @property
    def scope(self) -> dict[str, Any]:
        """The ASGI scope; made when it is first asked for."""

    def receive(self) -> Awaitable[dict[str, Any]]:
        """The next message."""

    def send(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        """Accepts, sends or closes; waits while the peer is slower.

        Raises:
            OSError: The socket is closed.
            RuntimeError: The message does not fit here.
            ValueError: A code or a header is not valid.
        """

    def finish(self, has_failed: bool) -> None:
        """Closes or refuses a socket whose application has ended."""

@final
class Pipe:
    """The client's end of a connection in memory; for the lane's thread only."""

    def read(self, max_bytes: int) -> Awaitable[bytes]:
        """Reads some bytes; none at the end.

        Args:
            max_bytes: How many at most.

        Raises:
            ConnectionError: When it is awaited: the server has broken off.
        """

    def write(self, data: bytes) -> Awaitable[None]:
        """Writes bytes; waits while the server is slower.

        Args:
            data: All of them are written.

        Raises:
            ConnectionError: When it is awaited: the server has closed.
        """

    def close(self) -> None:
        """Leaves, as a reset would."""

@final
class Codec:
    """Decodes and encodes JSON of a shape.

    Args:
        shape: A `justapi._shapes.Shape`.
    """

    def __new__(cls, shape: Any) -> Codec: ...
    def decode(self, document: bytes) -> Any:
        """Decodes a document that is plainly of the shape.

        Args:
            document: JSON.

        Raises:
            ValueError: It is not; pydantic has to say what it is.
        """

    def encode(self, value: Any) -> bytes | None:
        """Encodes a value.

        Args:
            value: Any object.

        Returns:
            JSON, or None for a value that is not plainly of the shape.
        """

@final
class NativeRoute:
    """A native route for requests that another server has read.

    Args:
        plan: A `justapi._plan.NativePlan`.

    Raises:
        ValueError: The plan is not valid, or a schema of it cannot be compiled.
    """

    def __new__(cls, plan: Any) -> NativeRoute: ...
    def answer(
        self,
        method: str,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes | None]:
        """Answers a request.

        Args:
            method: The method.
            query: The query string, percent-encoded.
            headers: Its header lines.
            body: The whole body.

        Returns:
            Status, header lines without a length, and the body; None stands for the plan's file.

        Raises:
            ValueError: A header or the query is not valid.
        """

@final
class Lane:
    """A lane of the server inside an asyncio loop.

    Args:
        event_loop: A stock selector loop, whose selector is going to ask this lane.
        selector_fd: Descriptor of that selector.
        descriptors: Listening sockets; the lane takes them over.
        mount: The application, a `justapi._lane.Served`.
        routes: Methods or None for all, pattern, plan or None, and whether there is a WebSocket.
        redirects_slashes: Whether a path that differs by its last slash is redirected.
        config: Settings as JSON.
        owns: Whether nobody else listens on the descriptors.
        beside: Another lane of the loop, which serves for this one, too; then there are no
            descriptors.
        num_lanes: Number of the server's lanes, of which this is the first.

    Raises:
        ValueError: A route or a setting is not valid.
        RuntimeError: A socket cannot be used.
    """

    def __new__(
        cls,
        event_loop: AbstractEventLoop,
        selector_fd: int,
        descriptors: list[int],
        mount: Any,
        routes: list[tuple[list[str] | None, str, Any, bool]],
        redirects_slashes: bool,
        config: str,
        owns: bool = False,
        beside: Lane | None = None,
        num_lanes: int = 1,
    ) -> Lane: ...
    def others(self) -> list[Seat]:
        """Takes the server's other lanes, each for a thread of its own."""

    def connect(self, witness: Any, secure: bool) -> Pipe:
        """Connects a client of this thread without a socket.

        Args:
            witness: Hears of what becomes of the requests, a `justapi._lane_server.Witness`.
            secure: Whether it counts as one that has come over TLS.
        """

    def watch_progress(self, seconds: float, descriptor: int) -> None:
        """Has a lane that does not move on reported, until it is gone.

        Args:
            seconds: Time after which it counts as stuck.
            descriptor: Gets `{"stuck":true}` then, on a line, and `{"stuck":false}` if it moves
                on after all.

        Raises:
            OSError: The descriptor is closed, or there is no thread to be had.
        """

    def select(self, timeout: float | None) -> bool:
        """Serves until the loop has something to do, at most for some seconds.

        Returns:
            Whether the loop's own descriptors may be ready.

        Raises:
            RuntimeError: The lane is serving already.
        """

    def put_back(self) -> None:
        """Gives the loop back the callbacks that came in while it was stopped.

        Whoever asks a lane no more calls it.
        """

    def addresses(self) -> list[str]:
        """Addresses as URLs."""

    def drain(self) -> None:
        """Has every lane stop accepting and finish what is in flight."""

    def kill(self) -> None:
        """Has every lane end what is in flight."""

    def drained(self) -> bool | None:
        """Whether everything was finished, once this lane has drained; until then None."""

    def counters(self) -> list[tuple[str, int]]:
        """Which ways requests of all lanes have taken, by name."""

    def num_requests(self) -> int:
        """Requests of all lanes that Python has been asked to answer."""

    @staticmethod
    def num_handler_threads() -> int:
        """Threads that call blocking handlers now."""

    @staticmethod
    def num_busy_threads() -> int:
        """Threads that are within a blocking handler now."""

@final
class Seat:
    """A lane of a server that has no thread yet."""

    def embed(self, event_loop: AbstractEventLoop, selector_fd: int) -> Lane:
        """Makes it a lane of the calling thread, once.

        Args:
            event_loop: A stock selector loop, whose selector is going to ask the lane.
            selector_fd: Descriptor of that selector.

        Raises:
            RuntimeError: It has a thread already, or the lane cannot be started.
        """
