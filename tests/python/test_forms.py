"""Forms: what Starlette reads is read, limits hold, memory and disk stay clean."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import tracemalloc
from pathlib import Path

import httpx
import pytest
import starlette.requests

from asgi import make_scope
from justapi._multipart import MAX_PART_HEADERS
from justapi.exceptions import HTTPException
from justapi.requests import ClientDisconnect, Request

URLENCODED = "application/x-www-form-urlencoded"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def make_request(body, content_type, *, step=None, module_request=Request, disconnect=False):
    if isinstance(body, bytes):
        size = step or max(len(body), 1)
        chunks = iter([body[at : at + size] for at in range(0, len(body), size)] or [b""])
    else:
        chunks = iter(body)
    state = {"next": next(chunks, b"")}

    async def receive():
        if state["next"] is None:
            return {"type": "http.disconnect"}
        chunk = state["next"]
        state["next"] = next(chunks, None)
        more = state["next"] is not None or disconnect
        return {"type": "http.request", "body": chunk, "more_body": more}

    scope = make_scope(method="POST", headers=[("content-type", content_type)], app=object())
    return module_request(scope, receive)


async def items(request, **limits):
    async with request.form(**limits) as form:
        found = []
        for name, value in form.multi_items():
            if isinstance(value, str):
                found.append((name, value))
            else:
                content = await value.read()
                found.append((name, value.filename, value.content_type, value.size, content))
        return found


def read(body, content_type, **options):
    limits = {key: options.pop(key) for key in list(options) if key.startswith("max_")}
    return asyncio.run(items(make_request(body, content_type, **options), **limits))


def refused(body, content_type, **options):
    gc.collect()
    before = open_files()
    with pytest.raises(HTTPException) as caught:
        read(body, content_type, **options)
    assert caught.value.status_code == 400
    assert len(str(caught.value.detail)) < 300
    gc.collect()
    assert open_files() == before
    return caught.value.detail


def multipart(**options):
    request = httpx.Request("POST", "http://h/", **options)
    return request.read(), request.headers["content-type"]


TYPE = "multipart/form-data; boundary=b"

FORMS = [
    multipart(data={"a": "1", "b": ["2", "3"], "ü": "ö"}, files={"f": ("n.txt", b"content")}),
    multipart(files=[("f", ("a", b"")), ("f", ("b", b"\r\n--x\r\n", "image/png"))]),
    multipart(files={"f": ('näme; "q".txt', b"x" * 200_000, "text/plain")}),
    multipart(files={"f": ("cr", b"\r" * 5000 + b"\r\n--" * 500)}),
    (b"--b--\r\n", "multipart/form-data; boundary=b"),
    (
        b"\r\n--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b--",
        'multipart/form-data; boundary="b"',
    ),
    (
        b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n\xe9\r\n--b--\r\nepilogue' * 1,
        "multipart/form-data; boundary=b; charset=latin-1",
    ),
    (b"a=1&a=2&b=%C3%BC+x&c&=d&&e=%zz&f=a=b", URLENCODED),
    (b"", TYPE),
    (b"", URLENCODED),
    (b"a=" + b"x" * 100_000 + b"&b=2", URLENCODED + "; charset=utf-8"),
    (b"{}", "application/json"),
    (b"", "text/plain"),
]


@pytest.mark.parametrize("step", [None, 1, 3, 1000])
@pytest.mark.parametrize(("body", "content_type"), FORMS)
def test_forms_as_starlette(body, content_type, step):
    if step == 1 and len(body) > 50_000:
        step = 7
    mine = read(body, content_type, step=step)
    other = read(body, content_type, step=step, module_request=starlette.requests.Request)
    assert mine == other


def part(*headers: str, data: bytes = b"x", boundary: str = "b") -> bytes:
    head = "".join(f"{line}\r\n" for line in headers)
    return f"--{boundary}\r\n{head}\r\n".encode() + data + b"\r\n"


NAMED = 'Content-Disposition: form-data; name="a"'
FILE = 'Content-Disposition: form-data; name="a"; filename="f"'
END = b"--b--\r\n"

MALFORMED = {
    "no boundary": (part(NAMED) + END, "multipart/form-data"),
    "empty boundary": (part(NAMED) + END, "multipart/form-data; boundary="),
    "boundary of 10 KB": (part(NAMED) + END, "multipart/form-data; boundary=" + "b" * 10_000),
    "no final boundary": (part(NAMED), TYPE),
    "no name": (part("Content-Disposition: form-data") + END, TYPE),
    "no disposition": (part("X: y") + END, TYPE),
    "preamble": (b"p" * 10_000_000 + b"\r\n" + part(NAMED) + END, TYPE),
    "bad header": (part("Bad Header: x", NAMED) + END, TYPE),
    "many headers": (part(*[f"X-{n}: y" for n in range(100_000)], NAMED) + END, TYPE),
    "long header": (part("X: " + "y" * 100_000, NAMED) + END, TYPE),
    "too many parts": (part(NAMED) * 100_000 + END, TYPE),
    "too many files": (part(FILE) * 100_000 + END, TYPE),
    "field of 100 MB": (part(NAMED, data=b"x" * 100_000_000) + END, TYPE),
    "filename twice": (
        part(NAMED + "; filename*=utf-8''a; filename*=utf-8''b") + END,
        TYPE,
    ),
    "filename of unknown charset": (part(NAMED + "; filename*=koi8-r''a") + END, TYPE),
    "urlencoded of a million fields": (b"a=1&" * 1_000_000, URLENCODED),
    "urlencoded field of 100 MB": (b"a" * 100_000_000, URLENCODED),
}


@pytest.mark.parametrize("step", [None, 65536])
@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_or_oversized_form_is_400(case, step):
    body, content_type = MALFORMED[case]
    refused(body, content_type, step=step)


def test_limits_are_the_callers():
    body = part(NAMED) * 2 + part(FILE) * 2 + END
    assert len(read(body, TYPE, max_fields=2, max_files=2, max_part_size=1)) == 4
    assert "2" not in refused(body, TYPE, max_fields=1)
    assert refused(body, TYPE, max_files=1) == "Too many files. Maximum number of files is 1."
    assert "exceeded" in refused(body, TYPE, max_part_size=0)
    assert refused(b"a=1&b=2", URLENCODED, max_fields=1).startswith("Too many fields.")
    assert refused(b"a=1&b=23", URLENCODED, max_part_size=3).startswith("Field exceeded")


def test_as_many_headers_as_allowed():
    body = part(NAMED, *[f"X-{n}: y" for n in range(MAX_PART_HEADERS - 1)]) + END
    assert read(body, TYPE) == [("a", "x")]


def test_a_long_epilogue_is_skipped():
    assert read(part(NAMED) + END + b"e" * 10_000_000, TYPE, step=65536) == [("a", "x")]


@pytest.mark.parametrize(
    ("parameter", "filename"),
    [
        ("filename*=UTF-8''na%C3%AFve%20%E2%82%AC.txt", "naïve €.txt"),
        ("filename*=iso-8859-1'en'%e9", "é"),
        ("filename=\"plain\"; filename*=utf-8''other", "plain"),
        ('filename="../../etc/passwd"', "../../etc/passwd"),
        ('filename=""', ""),
    ],
)
def test_file_names(parameter, filename):
    found = read(part(f"{NAMED}; {parameter}") + END, TYPE)
    assert found == [("a", filename, None, 1, b"x")]


def test_a_quoted_text_that_looks_like_a_parameter_is_none():
    body = part("Content-Disposition: form-data; name=\"a; filename*=utf-8''x\"") + END
    assert read(body, TYPE) == [("a; filename*=utf-8''x", "x")]


def test_a_client_that_leaves_leaves_no_file_behind():
    before = open_files()
    body = part(FILE, data=b"x" * 3_000_000)
    with pytest.raises(ClientDisconnect):
        read(body[:-100], TYPE, step=65536, disconnect=True)
    gc.collect()
    assert open_files() == before


def large_upload(num_chunks: int, chunk: bytes):
    yield part(FILE, data=b"")[:-2]
    for _ in range(num_chunks):
        yield chunk
    yield b"\r\n" + part(NAMED, data=b"after") + END


def test_a_large_upload_goes_to_disk():
    async def main():
        request = make_request(large_upload(1000, b"z" * 65536), TYPE)
        tracemalloc.start()
        async with request.form() as form:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert form["a"] == "after"
            file = form.getlist("a")[0]
            assert file.size == 1000 * 65536
            assert os.fstat(file.file.fileno()).st_nlink == 0
            assert await file.read(3) == b"zzz"
        assert file.file.closed
        assert peak < 4 * 1024 * 1024

    asyncio.run(main())


def test_parts_are_streamed_with_bounded_memory():
    chunk = bytes(range(256)) * 256

    async def main():
        request = make_request(large_upload(2000, chunk), TYPE)
        digest, size, seen = hashlib.sha256(), 0, []
        tracemalloc.start()
        async for upload in request.stream_form():
            seen.append((upload.name, upload.filename))
            async for data in upload:
                digest.update(data)
                size += len(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seen == [("a", "f"), ("a", None)]
        assert size == 2000 * len(chunk) + len(b"after")
        expected = hashlib.sha256(chunk * 2000 + b"after")
        assert digest.digest() == expected.digest()
        assert peak < 2 * 1024 * 1024

    asyncio.run(main())


def test_a_part_that_is_not_read_is_skipped():
    body = part(FILE, data=b"1" * 1000) + part(NAMED, data=b"2") + part(NAMED, data=b"3") + END

    async def main(step):
        read = []
        async for upload in make_request(body, TYPE, step=step).stream_form():
            if upload.filename is None:
                read.append(await upload.read())
                assert await upload.read() == b""
        assert read == [b"2", b"3"]

    for step in (1, 7, None):
        asyncio.run(main(step))


def test_limits_of_streamed_parts():
    async def consume(body, content_type=TYPE, **limits):
        async for upload in make_request(body, content_type).stream_form(**limits):
            await upload.read()

    body = part(NAMED) * 3 + END
    asyncio.run(consume(body, max_parts=3, max_part_size=1))
    for limits in ({"max_parts": 2}, {"max_part_size": 0}):
        with pytest.raises(HTTPException):
            asyncio.run(consume(body, **limits))
    with pytest.raises(HTTPException):
        asyncio.run(consume(b"a=1", URLENCODED))
    with pytest.raises(HTTPException):
        asyncio.run(consume(part(NAMED, data=b"x" * 2_000_000) + END))


def test_upload_file_moves_to_disk_as_it_grows():
    from tempfile import SpooledTemporaryFile

    from justapi.datastructures import UploadFile

    async def main():
        spool = SpooledTemporaryFile(max_size=10)  # noqa: SIM115  # closed below
        file = UploadFile(spool, size=0, filename="f")
        await file.write(b"x" * 10)
        assert file._in_memory
        await file.write(b"y")
        assert not file._in_memory
        assert file.size == 11
        await file.seek(9)
        assert await file.read() == b"xy"
        await file.close()
        with pytest.raises(ValueError):
            await file.read()

    asyncio.run(main())
