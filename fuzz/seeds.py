#!/usr/bin/env python3
"""Writes the seeds of each fuzz target into corpus/, a few of less than a kilobyte each.

Decisions stand at an input's end (core/src/fuzzing/mod.rs); files called found-* are inputs that
once broke a property, and are left alone.
"""

import struct
import zlib
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
WHOLE = b"\0"  # no cuts
CUT_AT_20 = b"\x14\0\1"  # one cut, in the order in which it is taken from the end


def write(target: str, seeds: dict[str, bytes]) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, seed in seeds.items():
        assert len(seed) < 1024, (target, name)
        (folder / name).write_bytes(seed)


def deflated(text: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-9)
    return (compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


def frame(first: int, payload: bytes) -> bytes:
    mask = bytes([0x37, 0xFA, 0x21, 0x3D])
    short = len(payload) < 126
    length = bytes([0x80 | len(payload)]) if short else b"\xfe" + struct.pack(">H", len(payload))
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([first]) + length + mask + masked


GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
write(
    "request_head",
    {
        "get": GET + b"\r\n" + WHOLE,
        "two": GET + b"X: 1\r\nx:\t2 \r\n\r\n" + GET + b"\r\n" + CUT_AT_20,
        "absolute": b"\r\nPUT http://[::1]:80?q=/ HTTP/1.0\r\nHost: b\r\nConnection: keep-alive\r\n\r\n"
        + WHOLE,
        "fixed": b"POST /a%20b?c HTTP/1.1\r\nhost:a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"
        + WHOLE,
        "chunked": GET
        + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        + WHOLE,
        "options": b"OPTIONS * HTTP/1.1\r\nHost:\r\nCookie: \xff\r\n\r\n" + WHOLE,
    },
)
write(
    "host",
    {
        "name": b"example.org:8080",
        "address": b"[::ffff:127.0.0.1]:65535",
        "encoded": b"a%20b!$&'()*+,;=~_-",
        "user": b"user@host:80",
        "empty-port": b"a:",
    },
)
write(
    "json_text",
    {
        "nested": b'{"b":[1,-2.5e3,{"c":null}],"a":{"d":[true,false,[]]},"e":{}}',
        "repeated": b'{"a":1,"b":2,"\\u0061":3,"a":{"x":1,"x":2}}',
        "escapes": b'["\\ud834\\udd1e","\\"\\\\\\/\\b\\f\\n\\r\\t","\xc3\xa4","\\ud834"]',
        "numbers": b"[0,-0,1.0,18446744073709551616,1e400,0.1e-5]",
        "equal": b'[1,1.0,"1",[1],[1.0],{"a":1},{"a":1.0},null,true]',
    },
)
CHUNKS = b'3;a="b"\r\nabc\r\nA \r\n0123456789\r\n0\r\nx: y\r\n\r\n'
write(
    "chunked",
    {
        "whole": CHUNKS + WHOLE + b"\0",
        "cut": CHUNKS + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + CUT_AT_20 + b"\0",
        "large": b"ffffffffffffffff\r\nabc" + WHOLE + b"\0",
        "encoded": b"some content of two chunks" + b"\5\0\1\1\2\x30\0\1",
    },
)
write(
    "query",
    {
        "types": b"a=1&b=true&c=2&c=3&d=x\4",
        "encoded": b"n%C3%A4me=a+b%2B&&x&=y&a=%zz&a=null\2",
        "arrays": b"a=1&a=&b=-0.5e3&b=007\3",
        "numbers": b"a=1e400&b=18446744073709551616&c=-0\1",
        "not-utf8": b"a=%ff\0",
    },
)
write(
    "cookie",
    {
        "pairs": b'a=1; b="2";c = 3;;=4\0',
        "lines": b'session\na=b=c; d="\n; e=\xe9\1',
        "name": b"__Host-id\nvalue of it\0",
    },
)
write(
    "range",
    {
        "one": b"bytes=0-9\0\0",
        "many": b"BYTES= 0-1 ,, 5-,-3,2-2\t\x2c\1",
        "large": b"bytes=99999999999999999999-,-18446744073709551616\x0a\0",
        "items": b"items=0-1\x0a\0",
        "empty": b"bytes=-1\0\0",
    },
)
PART = b'--XX\r\nContent-Disposition: form-data; name="a"; filename="C:\\\\x/y.txt"\r\nContent-Type: text/plain\r\n\r\n'
write(
    "multipart",
    {
        "file": PART + b"data\r\n--XX--\r\n" + WHOLE + b"\0",
        "two": b"before\r\n"
        + PART
        + b"\r\n"
        + PART
        + b"\r\n--X\r\n--XX--\r\nafter"
        + CUT_AT_20
        + b"\0",
        "star": b"--XX\r\ncontent-disposition: form-data; name=a; filename*=UTF-8''%2e%2e%2f%C3%A9\r\n\r\n1\r\n--XX--"
        + WHOLE
        + b"\0",
        "encoded": b"first\r\n--Xsecond" + b"\7\0\1\2\x20\0\1",
    },
)
write(
    "urlencoded",
    {
        "plain": b"name=tea&count=3&&note",
        "encoded": b"a+b=c%20d&%C3%A9=%FF&=%zz&x=;y=z",
        "long": b"a=" + b"%41" * 21,
        "many": b"a&b&c&d&e&f",
    },
)
TEXT = deflated(b"Hello Hello Hello")
write(
    "websocket",
    {
        "text": frame(0x81, "h\u00e9llo".encode())
        + frame(0x89, b"ping")
        + frame(0x88, b"\x03\xe8bye")
        + WHOLE
        + b"\0",
        "fragments": frame(0x01, b"a\xf0\x9f")
        + frame(0x8A, b"")
        + frame(0x80, b"\x98\x80")
        + CUT_AT_20
        + b"\0",
        "deflated": frame(0xC1, TEXT)
        + frame(0x42, TEXT[:4])
        + frame(0x80, TEXT[4:])
        + WHOLE
        + b"\2",
        "takeover": frame(0xC1, TEXT) + frame(0xC1, TEXT) + CUT_AT_20 + b"\6",
        "bomb": frame(0xC2, deflated(b"\0" * 100_000)) + WHOLE + b"\2",
        "encoded": b"message one, message two"
        + b"\5\0\1"
        + b"\1\2\3\4"
        + b"\x20\0"
        + b"\7\0"
        + b"\3",
        "plain": b"\xff\xfe binary" + WHOLE + b"\1\2\3\4" + b"\x20\0" + b"\7\0" + b"\1",
    },
)
write(
    "json_schema",
    {
        "object": b'{"type":"object","properties":{"a":{"type":"string","minLength":2,"pattern":"^[a-z]+$"}},'
        b'"required":["a"],"additionalProperties":false}\n{"a":"x","b":1}\0',
        "numbers": b'{"items":{"multipleOf":0.1,"exclusiveMaximum":1e3},"uniqueItems":true,"contains":{"const":1}}\n'
        b"[1, 1.0, 0.3, 1e400, -0]\0",
        "circle": b'{"$defs":{"n":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/n"}}]}},'
        b'"$ref":"#/$defs/n"}\n[[null],[[]]]\0',
        "formats": b'{"format":"email","not":{"format":"idn-hostname"},"if":{"maxLength":9},"then":{"format":"uri"}}\n'
        b'"a@b.example"\1',
        "lookahead": b'{"patternProperties":{"^(?=a)(a+)+$":{"enum":[1]}},"propertyNames":{"maxLength":30}}\n'
        b'{"aaaaaaaaaaaaaaaaaaaaaaaaab":2}\2',
        "remote": b'{"$ref":"https://example.com/other","unevaluatedProperties":false}\n"x"\0',
        "dynamic": b'{"$dynamicRef":"#m","$dynamicAnchor":"m","dependentSchemas":{"a":{"minProperties":2}}}\n{"a":{}}\0',
        "query": b'{"properties":{"a":{"type":"integer"}},"oneOf":[true,false]}\na=1&b=2\0',
    },
)
write(
    "accept_encoding",
    {
        "browser": b"gzip, deflate, br, zstd",
        "weights": b"gzip;q=0.5, br ; Q=1.000\nzstd;q=0,*;q=0.001",
        "identity": b"identity;q=0, x-gzip;q=1.001, *;q=0",
        "broken": b";q=1,gzip;q=,br;q=1;q=1,\xff",
    },
)
write(
    "forwarded",
    {
        "chain": b"203.0.113.9, 10.0.0.7\0\0",
        "forwarded": b'for="[2001:db9::17]:4711";proto=https;host="a.example", for=_hidden\1\1',
        "quoted": b'for="a\\"b, for=1.2.3.4\0\2',
        "lines": b"unknown\n[::1%25eth0]:80,::ffff:10.1.1.1\1\3",
    },
)
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
write(
    "traceparent",
    {
        "parent": PARENT,
        "state": PARENT + b"\nrojo=00f067aa0ba902b7,congo=t61rcWkgMzE\nx@y=z , ,a=b",
        "later": b"cc" + PARENT[2:-2] + b"ff-what-comes-later",
        "zeros": b"00-" + b"0" * 32 + b"-b7ad6b7169203331-00",
    },
)
write(
    "sse",
    {
        "events": b"\xef\xbb\xbf: hi\r\nid: 7\nevent: tick\rdata: a\ndata\nretry: 10\n\ndata:b\n\n"
        + WHOLE
        + b"\xff\0\0",
        "cut": b"data: one\r\n\r\nid\r\n\r\ndata: two\r\n\r\n" + CUT_AT_20 + b"\x40\0\0",
        "not-utf8": b"data: \xff\xfe\xfd\n\n" + WHOLE + b"\x0c\0\0",
        "encoded": b"lines\r\nof datacommentidname"
        + b"\4\0"
        + b"\2\0"
        + b"\x0b\0"
        + b"\3"
        + b"\x10\0"
        + b"\7\0"
        + b"\1",
    },
)
write(
    "config",
    {
        "server": b'[server]\nhost = "::1"\nport = 9_000\ngraceful = "30s"\n[server.limits]\nbody = "10MiB"\nheaders = 0x40\n',
        "lists": b'server.static = ["/a=b,c"]\nserver.trusted_proxies = ["10.0.0.0/8", "unix"]\nserver.lanes = "auto"\n',
        "unknown": b'[servr]\nport = 1\n["server"]\n"prot" = 1\nuds_mode = "660"\n',
        "broken": b'[server]\r\nport = "x\r\n',
        "wrong": b"server = 3\n[inference]\nmodel = {a = [1.5, 1979-05-27T07:32:00Z]}\n",
    },
)


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


SETTINGS = h2_frame(4, 0, 0, struct.pack(">HIHI", 4, 65_535, 2, 0))
REQUEST = h2_frame(1, 5, 1, b"\x82\x86\x84\x41\x01a")
write(
    "h2_frames",
    {
        "request": SETTINGS + h2_frame(4, 1, 0, b"") + REQUEST + WHOLE,
        "cut": SETTINGS + REQUEST + h2_frame(6, 0, 0, bytes(8)) + b"\x08\0\x03\0\2",
        "kinds": SETTINGS
        + h2_frame(0, 0, 1, b"data")
        + h2_frame(2, 0, 1, bytes(5))
        + h2_frame(3, 0, 1, bytes(4))
        + h2_frame(7, 0, 0, bytes(8))
        + h2_frame(8, 0, 0, bytes(4))
        + CUT_AT_20,
        "size": SETTINGS + h2_frame(6, 0, 0, bytes(7)) + CUT_AT_20,
        "window": SETTINGS + h2_frame(4, 0, 0, struct.pack(">HI", 4, 1 << 31)) + CUT_AT_20,
        "first": h2_frame(6, 0, 0, bytes(8)) + WHOLE,
        "ended": SETTINGS + REQUEST + h2_frame(0, 1, 1, b"late") + CUT_AT_20,
        "trailers": SETTINGS
        + h2_frame(1, 4, 1, b"\x83\x40\x05:path\x01/")
        + h2_frame(1, 5, 1, b"\x90\xbe")
        + WHOLE,
        "continued": SETTINGS
        + h2_frame(1, 0x29, 3, b"\2\0\0\0\0\7\x82\x40\x0aaccept-tex\0\0")
        + h2_frame(9, 0, 3, b"")
        + h2_frame(9, 4, 3, b"\x01y\x7e\x82\xf5\xff")
        + CUT_AT_20,
        "invalid": SETTINGS + h2_frame(1, 5, 1, b"\x82\xbe") + WHOLE,
    },
)

# Acts of core/src/server/tls/fuzzing/mod.rs, and how the stream is read: cuts, bytes lost at the end,
# writes in between, room.
DATA = b"\0\1\4data"
UPDATE = b"\1\1"
READ_WHOLE = b"\0\0\0\3"
CUT_ONCE = b"\x14\0\1\0\1\1"
write(
    "tls_records",
    {
        "data": DATA + b"\0\0\0" + DATA + CUT_ONCE,
        "updates": DATA + UPDATE + DATA + b"\1\0" + DATA + CUT_ONCE,
        "too-many-updates": UPDATE * 33 + READ_WHOLE,
        "message-in-pieces": b"\3\2\2\3\0\1\1" + DATA + CUT_ONCE,
        "half-a-message": b"\3\3" + DATA + CUT_ONCE,
        "close": DATA + b"\4\1\0" + DATA + CUT_ONCE,
        "alerts": b"\4\1\x5a" * 5 + READ_WHOLE,
        "fatal": DATA + b"\4\2\x28" + CUT_ONCE,
        "short-alert": b"\5\1" + READ_WHOLE,
        "other-type": b"\6\x14\1" + READ_WHOLE,
        "zeros": b"\7\7" + READ_WHOLE,
        "longest": b"\x08\4\0" + DATA + b"\x08\5\0" + READ_WHOLE,
        "overflow": b"\x08\xff\7" + CUT_ONCE,
        "changed": DATA + b"\x09\x0c\1" + CUT_ONCE,
        "changed-head": DATA + b"\x09\1\0" + CUT_ONCE,
        "forged": DATA + b"\x0a\x15\3\0\2\2\1\0" + READ_WHOLE,
        "forged-length": b"\x0a\x17\3\x41\1\0" + READ_WHOLE,
        "again": DATA + b"\x0b\0" + CUT_ONCE,
        "early": DATA + b"\x0b\1" + b"\x0b\2" + CUT_ONCE,
        "lost-end": DATA + DATA + b"\0\x07\1\2",
        "empty": b"\0\0\0" * 33 + READ_WHOLE,
    },
)


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(version: int, entries: list[bytes], tensors: list[bytes], data: bytes) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def gguf_number(key: str, value: int) -> bytes:
    return gguf_text(key) + struct.pack("<II", 4, value)


LLAMA = [
    gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama"),
    gguf_number("llama.embedding_length", 8),
    gguf_number("llama.feed_forward_length", 8),
    gguf_number("llama.block_count", 1),
    gguf_number("llama.attention.head_count", 2),
    gguf_number("llama.context_length", 64),
    gguf_text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5),
    gguf_text("tokenizer.ggml.tokens")
    + struct.pack("<IIQ", 9, 8, 2)
    + gguf_text("a")
    + gguf_text("<|im_end|>"),
    gguf_text("tokenizer.ggml.token_type") + struct.pack("<IIQii", 9, 5, 2, 1, 3),
]
EMBEDDING = gguf_text("token_embd.weight") + struct.pack("<IQQIQ", 2, 8, 2, 1, 0)
NESTED = gguf_text("nested") + struct.pack("<IIQIQBB", 9, 9, 1, 0, 2, 7, 8)
write(
    "gguf",
    {
        "llama": gguf(3, LLAMA, [EMBEDDING], bytes(32)),
        "nested": gguf(2, [NESTED], [], b""),
        "cut": gguf(3, LLAMA, [EMBEDDING], bytes(31)),
        "many": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60),
    },
)


def safetensors(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


TWO = (
    b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    b'"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]}}'
)
write(
    "safetensors",
    {
        "two": safetensors(TWO, bytes(12)),
        "gap": safetensors(b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}', bytes(4)),
        "long": struct.pack("<Q", 1 << 60) + b"{}",
    },
)
