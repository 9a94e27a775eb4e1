"""Clients that may do what clients should not."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import struct
from typing import Any


async def until(what: str, check: Any) -> None:
    """Waits until `check` holds."""
    try:
        async with asyncio.timeout(20):
            while not check():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


def vanish(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with a reset."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()


class Peer:
    """The client's end of a WebSocket; nothing is checked."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(
        cls, port: int, path: str = "/", host: str = "t", *, fields: str = ""
    ) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{fields}\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            writer.close()
            await writer.wait_closed()
            raise AssertionError(head)
        return cls(reader, writer)

    def send(self, opcode: int, payload: bytes, *, final: bool = True) -> None:
        mask = os.urandom(4)
        size = len(payload)
        head = bytes([(0x80 if final else 0) | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += bytes([0x80 | 126]) + struct.pack("!H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", size)
        repeated = mask * (size // 4 + 1)
        masked = bytes(a ^ b for a, b in zip(payload, repeated, strict=False))
        self.writer.write(head + mask + masked)

    async def receive(self) -> tuple[int, bytes]:
        """The next frame: its opcode and payload."""
        async with asyncio.timeout(10):
            first, second = await self.reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            return first & 0x0F, await self.reader.readexactly(size)

    async def close_code(self) -> int:
        """The code that the server closes with; skips what comes before."""
        while True:
            opcode, payload = await self.receive()
            if opcode == 8:
                return int.from_bytes(payload[:2])

    def vanish(self) -> None:
        """Ends with a reset."""
        vanish(self.writer)
