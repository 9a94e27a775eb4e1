"""The client's side of RFC 6455, as far as a test client needs it: no extensions, no limits."""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Frame", "FrameReader", "Opcode", "close_payload", "masked_frame", "read_close"]

_FIN = 0x80
_MASKED = 0x80
_NO_STATUS = 1005
"""Stands for a Close frame without a code; never on the wire (RFC 6455 section 7.4.1)."""
_ABNORMAL = 1006


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Frame(NamedTuple):
    """A control frame, or a message whose fragments were put together."""

    opcode: Opcode
    payload: bytes


def masked_frame(opcode: Opcode, payload: bytes) -> bytes:
    """Makes one frame of a client's."""
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", _FIN | opcode, _MASKED | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", _FIN | opcode, _MASKED | 126, length)
    else:
        head = struct.pack("!BBQ", _FIN | opcode, _MASKED | 127, length)
    mask = os.urandom(4)
    key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(length, "big")


def close_payload(code: int, reason: str) -> bytes:
    """Makes the payload of a Close frame; a reason that is too long is cut."""
    if code in (_NO_STATUS, _ABNORMAL):
        return b""
    cut = reason.encode()[:123].decode(errors="ignore")
    return struct.pack("!H", code) + cut.encode()


def read_close(payload: bytes) -> tuple[int, str]:
    """Returns code and reason of a Close frame."""
    if len(payload) < 2:
        return _NO_STATUS, ""
    return struct.unpack("!H", payload[:2])[0], payload[2:].decode()


class FrameReader:
    """Takes bytes of a server's apart."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opcode = Opcode.TEXT
        self._message = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that are whole with these bytes."""
        self._buffer += data
        frames = []
        while (found := self._next()) is not None:
            is_last, opcode, payload = found
            if opcode >= Opcode.CLOSE:
                frames.append(Frame(opcode, payload))
                continue
            if opcode != Opcode.CONTINUATION:
                self._opcode = opcode
            self._message += payload
            if is_last:
                frames.append(Frame(self._opcode, bytes(self._message)))
                self._message.clear()
        return frames

    def _next(self) -> tuple[bool, Opcode, bytes] | None:
        if len(self._buffer) < 2:
            return None
        first, length = self._buffer[0], self._buffer[1]
        start = 2
        if length >= 126:
            start += 2 if length == 126 else 8
            if len(self._buffer) < start:
                return None
            length = int.from_bytes(self._buffer[2:start], "big")
        if len(self._buffer) < start + length:
            return None
        payload = bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        return bool(first & _FIN), Opcode(first & 0x0F), payload
