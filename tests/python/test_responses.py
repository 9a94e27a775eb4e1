"""Responses: the same messages as Starlette's, except where RFC 9110 says otherwise."""

from __future__ import annotations

import datetime
import importlib.util
import os
import sys
import warnings

import fastapi.responses
import pytest
import starlette.responses as theirs

import justapi.responses as ours
from asgi import make_scope, respond

MOMENT = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)

MAKE = [
    lambda m: m.Response(),
    lambda m: m.Response(b"bytes", 201, {"X-A": "1"}, "application/x-thing"),
    lambda m: m.Response("ünïcode", media_type="text/plain"),
    lambda m: m.Response("x", media_type="text/plain; charset=latin-1"),
    lambda m: m.Response(memoryview(b"abc")),
    lambda m: m.Response(None, 204),
    lambda m: m.Response(None, 304),
    lambda m: m.Response("x", headers={"Content-Length": "1", "Content-Type": "a/b"}),
    lambda m: m.HTMLResponse("<p>"),
    lambda m: m.PlainTextResponse("plain"),
    lambda m: m.JSONResponse({"a": [1, 2.5, None, True, "ü"], "b": {}}),
    lambda m: m.JSONResponse(None, 404),
    lambda m: m.RedirectResponse("/a b?ü=1#x"),
    lambda m: m.RedirectResponse("https://example.org/", 303, {"x": "y"}),
]


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_the_same_messages(make, kind):
    scope = {"type": kind}
    mine, other = respond(make(ours), **scope), respond(make(theirs), **scope)
    assert mine.messages == other.messages


COOKIES = [
    {},
    {"value": 'a b;c,"ü'},
    {"value": "v", "max_age": 10, "expires": 20},
    {"value": "v", "expires": MOMENT},
    {"value": "v", "expires": "Thu, 01 Jan 1970 00:00:00 GMT"},
    {"value": "v", "path": None, "domain": "example.org", "secure": True, "httponly": True},
    {"value": "v", "samesite": None},
    {"value": "v", "samesite": "strict", "path": "/p"},
]


@pytest.mark.parametrize("options", COOKIES)
def test_set_cookie(options):
    mine, other = ours.Response(), theirs.Response()
    if options.get("expires") == 20:
        # An age counts from now, which may tick between the two.
        options = {**options, "expires": None}
    for response in (mine, other):
        response.set_cookie("name", **options)
        response.set_cookie("second")
        response.delete_cookie("name", path="/x", domain="d.example", secure=True)
    dated = (mine.raw_headers[-1][1], other.raw_headers[-1][1])
    assert dated[0].partition(b"expires=")[0] == dated[1].partition(b"expires=")[0]
    assert mine.raw_headers[:-1] == other.raw_headers[:-1]


def test_partitioned_cookie():
    response = ours.Response()
    response.set_cookie("a", "b", secure=True, samesite="none", partitioned=True)
    assert b"Partitioned" in response.raw_headers[-1][1].replace(b"; ", b"\n").split(b"\n")


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: x=y", "a\nb", "a\0b", "\u20ac"])
def test_nothing_can_be_injected(value):
    for attempt in (
        lambda: ours.Response(headers={"X": value}),
        lambda: ours.Response(media_type=value),
        lambda: ours.StreamingResponse([], headers={"X": value}),
        lambda: ours.Response().headers.__setitem__("x", value),
        lambda: ours.Response().set_cookie("a", "b", domain=value),
        lambda: ours.Response().set_cookie("a", "b", path=value),
    ):
        with pytest.raises(ValueError):
            attempt()
    location = dict(ours.RedirectResponse("/" + value).raw_headers)[b"location"]
    assert not {b"\r", b"\n", b"\0"} & {bytes([byte]) for byte in location}


def test_a_cookie_value_is_quoted_not_injected():
    response = ours.Response()
    response.set_cookie("a", "x\r\ny")
    [sent] = [value for name, value in response.raw_headers if name == b"set-cookie"]
    assert sent == rb'a="x\015\012y"; Path=/; SameSite=lax'


def test_content_that_is_neither_text_nor_bytes():
    with pytest.raises(TypeError, match="JSONResponse"):
        ours.Response({"a": 1})
    with pytest.raises(ValueError):
        ours.JSONResponse(float("nan"))


def test_headers_write_through_to_raw_headers():
    response = ours.Response("x")
    response.headers["X-A"] = "1"
    del response.headers["content-length"]
    assert response.raw_headers == [(b"x-a", b"1")]
    response.raw_headers = []
    response.headers["x-b"] = "2"
    assert response.raw_headers == [(b"x-b", b"2")]


def test_background_runs_after_the_last_message():
    order = []

    async def background():
        order.append("background")

    def body():
        yield "a"
        order.append("body")

    respond(ours.StreamingResponse(body(), background=background))
    assert order == ["body", "background"]


CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(CONTENT)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def ask(response, *headers, method="GET", **scope):
    return respond(response, headers=headers, method=method, **scope)


SAME_RANGES = [
    "bytes=0-0",
    "bytes=5-10",
    "bytes=-5",
    "bytes=255990-",
    "bytes=0-999999999",
    "bytes=-99999999",
    "bytes=256000-",
    "bytes=999999999-",
]


@pytest.mark.parametrize("asked", SAME_RANGES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_single_ranges_as_starlette(file, asked, method):
    mine = ask(ours.FileResponse(file), ("range", asked), method=method)
    other = ask(theirs.FileResponse(file), ("range", asked), method=method)
    assert (mine.status, mine.body) == (other.status, other.body if mine.status == 206 else b"")
    assert mine.headers.get("content-range") == other.headers.get("content-range")
    if mine.status == 206:
        assert mine.headers == other.headers
    else:
        assert mine.status == 416 and mine.headers["content-range"] == f"bytes */{len(CONTENT)}"


@pytest.mark.parametrize(
    "asked",
    [
        "bytes",
        "bytes=",
        "bytes=a-b",
        "bytes=5-2",
        "lines=1-2",
        "bytes=-",
        "bytes=1-2-3",
        "bytes=٣-٤",
        "bytes=0-" + "9" * 5000,
        "bytes=" + "0-0," * 10_000 + "0-0",
        "bytes=0-0,,x",
    ],
)
def test_a_range_that_cannot_be_understood_is_ignored(file, asked):
    scope = make_scope()
    scope["headers"].append((b"range", asked.encode("utf-8")))
    answer = respond(ours.FileResponse(file), headers=[("range", asked.encode().decode("latin-1"))])
    assert (answer.status, answer.body) == (200, CONTENT)


def test_several_ranges_are_merged_and_sent_in_parts(file):
    answer = ask(ours.FileResponse(file), ("range", "bytes=10-20, 0-4,15-30, 900000-"))
    assert answer.status == 206
    boundary = answer.headers["content-type"].partition("boundary=")[2]
    parts = answer.body.split(f"--{boundary}".encode())
    assert parts[0] == b"" and parts[-1] == b"--"
    assert [part.partition(b"\r\n\r\n")[2] for part in parts[1:-1]] == [
        CONTENT[0:5] + b"\r\n",
        CONTENT[10:31] + b"\r\n",
    ]
    assert b"Content-Range: bytes 0-4/256000\r\n" in parts[1]
    assert int(answer.headers["content-length"]) == len(answer.body)


def test_whole_files_as_starlette(file):
    for options in (
        {},
        {"filename": "näme.txt"},
        {"filename": "plain.txt", "content_disposition_type": "inline"},
        {"media_type": "text/css", "headers": {"etag": '"mine"'}},
        {"status_code": 404},
        {"stat_result": file.stat()},
    ):
        for method in ("GET", "HEAD", "POST"):
            mine = ask(ours.FileResponse(file, **options), method=method)
            other = ask(theirs.FileResponse(file, **options), method=method)
            assert (mine.status, mine.raw_headers, mine.body) == (
                other.status,
                other.raw_headers,
                other.body,
            )


def conditions(file):
    headers = ask(ours.FileResponse(file), method="HEAD").headers
    etag, modified = headers["etag"], headers["last-modified"]
    earlier, later = "Tue, 14 Nov 2020 22:13:20 GMT", "Tue, 14 Nov 2028 22:13:20 GMT"
    return [
        ({"if-none-match": etag}, 304),
        ({"if-none-match": f'"a", W/{etag}'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"other"'}, 200),
        ({"if-none-match": '"other"', "if-modified-since": later}, 200),
        ({"if-modified-since": modified}, 304),
        ({"if-modified-since": later}, 304),
        ({"if-modified-since": earlier}, 200),
        ({"if-modified-since": "yesterday"}, 200),
        ({"if-match": etag}, 200),
        ({"if-match": "*"}, 200),
        ({"if-match": f"W/{etag}"}, 412),
        ({"if-match": '"other"'}, 412),
        ({"if-unmodified-since": earlier}, 412),
        ({"if-unmodified-since": modified}, 200),
        ({"range": "bytes=0-1", "if-range": etag}, 206),
        ({"range": "bytes=0-1", "if-range": modified}, 206),
        ({"range": "bytes=0-1", "if-range": f"W/{etag}"}, 200),
        ({"range": "bytes=0-1", "if-range": '"other"'}, 200),
        ({"range": "bytes=0-1", "if-none-match": etag}, 304),
    ]


def test_conditional_requests(file):
    for headers, status in conditions(file):
        answer = ask(ours.FileResponse(file), *headers.items())
        assert answer.status == status, headers
        if status in (304, 412):
            assert answer.body == b""
        if status == 304:
            assert "etag" in answer.headers and "content-length" not in answer.headers


def test_a_whole_file_goes_to_a_server_that_can_send_it(file):
    extensions = {"http.response.pathsend": {}}
    answer = ask(ours.FileResponse(file), extensions=extensions)
    assert answer.messages[1] == {"type": "http.response.pathsend", "path": str(file)}
    part = ask(ours.FileResponse(file), ("range", "bytes=0-1"), extensions=extensions)
    assert part.body == CONTENT[:2]


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(RuntimeError, match=str(path)):
            ask(ours.FileResponse(path))


def test_a_file_that_shrinks_breaks_the_message_off(file):
    stat_result = file.stat()
    file.write_bytes(b"short")
    with pytest.raises(RuntimeError, match="shorter"):
        ask(ours.FileResponse(file, stat_result=stat_result))


def test_an_empty_file(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert ask(ours.FileResponse(path)).body == b""
    assert ask(ours.FileResponse(path), ("range", "bytes=0-")).status == 416


# orjson has no build for free-threaded interpreters.
ENCODERS = [
    name
    for name, package in (("ORJSONResponse", "orjson"), ("UJSONResponse", "ujson"))
    if importlib.util.find_spec(package)
]


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_of_other_packages(name):
    content = {"a": [1, 2.5, None, "ü"], "b": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = respond(getattr(fastapi.responses, name)(content))
    assert respond(getattr(ours, name)(content)).messages == other.messages


def test_an_encoder_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "orjson", None)
    with pytest.raises(RuntimeError, match="orjson must be installed"):
        ours.ORJSONResponse({})
