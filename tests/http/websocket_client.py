"""Talks to the demo's /ws with the `websockets` library, which has its own
codec and the C zlib: usage: websocket_client.py PORT. Exit code 0 means that
every check held.
"""

import asyncio
import os
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

MESSAGES = [
    "",
    "hello",
    "é" * 1000,
    b"",
    b"\x00" * 70_000,
    os.urandom(200_000),
    "The quick brown fox. " * 20_000,
    ["one ", "message ", "in ", "pieces " * 1000],
    [b"\x01" * 100, b"", b"\x02" * 100_000],
]

# Parameters of the offer; the demo agrees to each.
OFFERS = [
    {},
    {"client_max_window_bits": True},
    {"client_max_window_bits": 9},
    {"server_max_window_bits": 9},
    {"server_no_context_takeover": True},
    {"client_no_context_takeover": True},
    {
        "server_no_context_takeover": True,
        "client_no_context_takeover": True,
        "server_max_window_bits": 11,
        "client_max_window_bits": 12,
    },
]


async def talk(uri: str, offer: dict | None) -> None:
    """Sends each message twice and compares what comes back."""
    extensions = None if offer is None else [ClientPerMessageDeflateFactory(**offer)]
    options = {"compression": None, "extensions": extensions, "max_size": None}
    async with connect(uri, subprotocols=["soap", "echo"], **options) as socket:
        assert socket.subprotocol == "echo", socket.subprotocol
        num_agreed = len(socket.protocol.extensions)
        assert num_agreed == (0 if offer is None else 1), (offer, socket.response)
        for message in MESSAGES * 2:
            await socket.send(message)
            whole = message if not isinstance(message, list) else type(message[0])().join(message)
            received = await socket.recv()
            assert received == whole, (offer, len(whole), len(received))
        await (await socket.ping(b"there?"))
        await socket.close(3333, "enough")
        assert socket.close_code == 3333, socket.close_code


async def main(port: str) -> None:
    """Runs every check."""
    uri = f"ws://127.0.0.1:{port}/ws"
    for offer in [None, *OFFERS]:
        await talk(uri, offer)
        await talk(f"{uri}?context=keep", offer)
    try:
        await connect(uri, origin="https://elsewhere.example")
    except InvalidStatus as refused:
        assert refused.response.status_code == 403, refused
    else:
        raise AssertionError("a page of another origin was let in")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
