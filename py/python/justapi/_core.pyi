"""The extension module: core's lane with Python handlers."""

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, final

__all__ = ["VERSION", "Exchange", "Lane", "Socket", "encode_json", "end_with_parent"]

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

@final
class Exchange:
    """One request that a lane answers, as ASGI has it."""

    context: Any
    """Free for the Python layer."""

    @property
    def scope(self) -> dict[str, Any]:
        """The ASGI scope; made when it is first asked for."""

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
    ) -> Lane: ...
    def select(self, timeout: float | None) -> bool:
        """Serves until the loop has something to do, at most for some seconds.

        Returns:
            Whether the loop's own descriptors may be ready.

        Raises:
            RuntimeError: The lane is serving already.
        """

    def addresses(self) -> list[str]:
        """Addresses as URLs."""

    def drain(self) -> None:
        """Stops accepting and lets what is in flight finish."""

    def kill(self) -> None:
        """Ends what is in flight."""

    def drained(self) -> bool | None:
        """Whether everything was finished, once the lane has drained; until then None."""

    def counters(self) -> list[tuple[str, int]]:
        """Which ways requests have taken, by name."""

    def num_requests(self) -> int:
        """Requests that Python has been asked to answer."""

    @staticmethod
    def num_handler_threads() -> int:
        """Threads that call blocking handlers now."""

    @staticmethod
    def num_busy_threads() -> int:
        """Threads that are within a blocking handler now."""
