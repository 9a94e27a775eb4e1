"""What `justapi serve` is told holds for Python applications, however it is told."""

from __future__ import annotations

import gzip
import json
import signal
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.sync.client import connect

from serving import Server, eventually, is_alive, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

APP = """
    from justapi import JustAPI, Request
    from justapi.responses import StreamingResponse
    app = JustAPI()

    @app.get("/hello")
    def hello(): return "hello " * 500

    @app.get("/client")
    def client(request: Request):
        return [request.client.host, request.url.scheme, request.headers["host"]]

    @app.get("/visits")
    def visits(request: Request):
        request.session["visits"] = request.session.get("visits", 0) + 1
        return request.session["visits"]

    @app.get("/look")
    def look(request: Request): return request.session.get("visits")

    @app.get("/later")
    async def later(request: Request):
        request.session["visits"] += 1
        return StreamingResponse(iter(["later"]))

    @app.get("/leave")
    async def leave(request: Request): request.session.clear()

    @app.get("/large")
    def large(request: Request): request.session["large"] = "x" * 4000

    @app.post("/length")
    async def length(request: Request): return len(await request.body())
"""


@contextmanager
def upstream() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Runs a server that keeps what it is asked; gives its URL and that."""
    asked: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append((self.path, body))
            text = b"{}" if self.path == "/v1/traces" else self.path.encode()
            self.send_response(200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def check_settings(server: Server) -> None:
    """Checks what the three forms of the same settings come to."""
    client = server.client
    origin = {"origin": "https://a.example"}
    answer = client.get("/hello", headers={**origin, "accept-encoding": "br"})
    assert answer.headers["access-control-allow-origin"] == "https://a.example"
    assert answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-encoding"] == "br"
    assert client.post("/length", content=b"x" * 1025).status_code == 413
    forwarded = {"x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https"}
    assert client.get("/client", headers=forwarded).json()[:2] == ["192.0.2.7", "https"]
    assert client.get("/hello", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/hello", headers={"host": "a.example"}).status_code == 200
    assert client.get("/files/app.py").status_code == 200
    assert client.get("/health").status_code == 404
    assert "justapi_requests_total" in client.get("/numbers").text
    client.cookies.clear()
    assert [client.get("/visits").json() for _ in range(3)] == [1, 2, 3]
    assert server.stop() == 0


def test_settings_come_by_flags(tmp_path: Path) -> None:
    flags = [
        "--cors=https://a.example",
        "--request-id",
        "--security-headers",
        "--compression",
        "--limit-body=1KiB",
        "--trusted-proxy=127.0.0.1",
        "--trusted-host=a.example",
        "--trusted-host=auto",
        "--health=false",
        "--metrics=/numbers",
        f"--static=/files={tmp_path}",
        f"--session-secret-file={secrets(tmp_path)}",
    ]
    with Server(tmp_path, APP, *flags) as server:
        check_settings(server)


def test_settings_come_by_variables(tmp_path: Path) -> None:
    variables = {
        "SERVER__CORS": "https://a.example",
        "SERVER__REQUEST_ID": "true",
        "SERVER__SECURITY_HEADERS": "true",
        "SERVER__COMPRESSION": "true",
        "SERVER__LIMITS__BODY": "1KiB",
        "SERVER__TRUSTED_PROXIES": "127.0.0.1",
        "SERVER__TRUSTED_HOSTS": "auto,a.example",
        "SERVER__HEALTH": "false",
        "METRICS__PATH": "/numbers",
        "SERVER__STATIC": f"/files={tmp_path}",
        "SERVER__SESSION__SECRET_FILE": str(secrets(tmp_path)),
    }
    named = {f"JUSTAPI_{name}": value for name, value in variables.items()}
    with Server(tmp_path, APP, **named) as server:
        check_settings(server)


def test_settings_come_by_file(tmp_path: Path) -> None:
    (tmp_path / "justapi.toml").write_text(
        f"""
        [server]
        cors = ["https://a.example"]
        request_id = true
        security_headers = true
        compression = true
        trusted_proxies = ["127.0.0.1"]
        trusted_hosts = ["auto", "a.example"]
        health = false
        static = ["/files={tmp_path}"]
        [server.limits]
        body = "1KiB"
        [server.session]
        secret_file = "{secrets(tmp_path)}"
        [metrics]
        path = "/numbers"
        """
    )
    with Server(tmp_path, APP) as server:
        check_settings(server)


def secrets(folder: Path) -> Path:
    """Writes a file of secrets."""
    path = folder / "secrets"
    path.write_text("a secret of thirty-two bytes, or more\n")
    path.chmod(0o600)
    return path


def test_sessions(tmp_path: Path) -> None:
    flags = ["--workers=2", f"--session-secret-file={secrets(tmp_path)}", "--session-cookie=mine"]
    with Server(tmp_path, APP, *flags) as server:
        client = server.client
        assert "set-cookie" not in client.get("/look").headers
        assert client.get("/look").json() is None
        assert client.get("/visits").json() == 1
        assert client.cookies["mine"]
        assert client.get("/look").json() == 1
        assert "set-cookie" not in client.get("/look").headers
        assert client.get("/later").text == "later"
        assert client.get("/look").json() == 2
        assert client.get("/large").status_code == 500
        assert client.get("/look").json() == 2
        assert client.get("/leave").status_code == 200
        assert "mine" not in client.cookies
        assert client.get("/look").json() is None
        client.cookies["mine"] = "forged"
        assert client.get("/look").json() is None
        assert server.stop() == 0


def test_sessions_of_an_asgi_application_and_of_websockets(tmp_path: Path) -> None:
    source = """
        import json
        async def app(scope, receive, send):
            if scope["type"] == "lifespan": return
            session = scope["session"]
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.accept"})
                await send({"type": "websocket.send", "text": json.dumps(session)})
                return await send({"type": "websocket.close"})
            session["n"] = session.get("n", 0) + 1
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(session).encode()})
    """
    with Server(tmp_path, source, f"--session-secret-file={secrets(tmp_path)}") as server:
        assert [server.client.get("/").json()["n"] for _ in range(2)] == [1, 2]
        cookie = f"session={server.client.cookies['session']}"
        url = server.url.replace("http", "ws")
        with connect(url, additional_headers={"cookie": cookie}) as socket:
            assert json.loads(socket.recv()) == {"n": 2}
        assert server.stop() == 0


def test_a_secret_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    secrets(tmp_path).chmod(0o644)
    (tmp_path / "app.py").write_text("from justapi import JustAPI\napp = JustAPI()\n")
    flags = ["app:app", "--port=0", "--session-secret-file=secrets"]
    checked = run(tmp_path, "serve", *flags, "--check")
    assert checked.returncode == 3, checked
    served = run(tmp_path, "serve", *flags)
    assert served.returncode == 3, served
    assert "chmod 600" in checked.stderr
    assert "chmod 600" in served.stderr


def test_proxies(tmp_path: Path) -> None:
    with (
        upstream() as (url, asked),
        Server(tmp_path, APP, f"--proxy=/other={url}/base") as server,
    ):
        assert server.client.get("/other/a?b=c").text.endswith("a?b=c")
        assert server.client.post("/other", content=b"x").status_code == 200
        assert [body for _, body in asked] == [b"", b"x"]
        assert server.client.get("/hello").status_code == 200
        assert server.stop() == 0
    with Server(tmp_path, APP, f"--proxy=/other={url}") as alone:
        assert alone.client.get("/other/a").status_code == 502
        assert alone.stop() == 0


def test_traces(tmp_path: Path) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with upstream() as (url, asked):
        flags = [
            "--trace",
            f"--trace-endpoint={url}",
            "--trace-service-name=mine",
            "--access-log=json",
        ]
        with Server(tmp_path, APP, *flags) as server:
            server.client.get("/hello", headers={"traceparent": trace})
            assert server.stop() == 0
            # What was not exported by then is when the worker ends.
            [(path, body), *_] = asked
            assert path == "/v1/traces"
            [resource] = json.loads(body)["resourceSpans"]
            assert "mine" in json.dumps(resource["resource"])
            [span] = resource["scopeSpans"][0]["spans"]
            assert span["traceId"] == trace[3:35]
            assert span["parentSpanId"] == trace[36:52]
            assert "/hello" in span["name"]
            assert trace[3:35] in "".join(server.errors)


def test_limits_of_clients_and_redirects(tmp_path: Path) -> None:
    flags = ["--rate-limit=2/m", "--https-redirect", "--https-redirect-port=8443", "--hsts=1h"]
    with Server(tmp_path, APP, *flags, "--trusted-proxy=127.0.0.1") as server:
        secure = {"x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.8"}
        redirected = server.client.get("/hello?a=b")
        assert redirected.status_code == 308
        assert redirected.headers["location"] == "https://127.0.0.1:8443/hello?a=b"
        answer = server.client.get("/hello", headers=secure)
        assert "max-age=3600" in answer.headers["strict-transport-security"]
        codes = [server.client.get("/hello", headers=secure).status_code for _ in range(3)]
        assert codes[-1] == 429
        assert server.client.get("/live").status_code == 200
        assert server.stop() == 0


def test_metrics_on_an_address_of_their_own(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--workers=2", "--metrics=127.0.0.1:0") as server:
        assert server.metrics is not None
        assert server.client.get("/metrics").status_code == 404
        assert "justapi_requests_total" in httpx.get(server.metrics).text
        assert httpx.get(server.metrics.replace("/metrics", "/ready")).status_code == 200
        assert httpx.get(server.metrics, headers={"host": "evil.example"}).status_code == 421
        server.signal(signal.SIGHUP)
        eventually(
            "the workers are replaced", lambda: not any(is_alive(pid) for pid in server.workers)
        )
        assert "justapi_requests_total" in httpx.get(server.metrics).text
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("--docs=false", ["server.docs", "docs_url=None"]),
        ("--session-max-age=0s", ["server.session.max_age"]),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    tmp_path: Path, setting: str, says: list[str]
) -> None:
    (tmp_path / "app.py").write_text("app = 1")
    flags = ["--session-secret-file", str(secrets(tmp_path))] if "session" in setting else []
    for more in ([], ["--check"]):
        done = run(tmp_path, "serve", "app:app", "--port=0", setting, *flags, *more)
        assert done.returncode in (2, 3), done
        assert all(text in done.stderr for text in says), done.stderr


def test_one_lane_is_what_a_worker_has(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--lanes=1") as server:
        assert server.client.get("/hello").status_code == 200
        assert server.stop() == 0


ASGI = """
    async def app(scope, receive, send):
        if scope["type"] == "lifespan": return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"mine " + scope["raw_path"]})
"""


@pytest.mark.parametrize("flags", [[], ["--interface=asgi"]])
def test_an_asgi_application_answers_its_own_probes(tmp_path: Path, flags: list[str]) -> None:
    with Server(tmp_path, ASGI, *flags) as server:
        for path in ("/health", "/live", "/ready", "/metrics"):
            assert server.client.get(path).text == f"mine {path}"
        assert server.stop() == 0


def test_the_probes_of_the_server_can_be_asked_for(tmp_path: Path) -> None:
    with Server(tmp_path, ASGI, "--health", "--metrics=/metrics") as server:
        assert server.client.get("/health").json() == {"status": "ok"}
        assert "justapi_python_asgi_total" in server.client.get("/metrics").text
        assert server.client.get("/other").text == "mine /other"
        assert server.stop() == 0


def test_ours_over_asgi_answers_its_own_probes(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--interface=asgi") as server:
        assert server.client.get("/health").status_code == 404
        assert server.client.get("/hello").status_code == 200
        assert server.stop() == 0
    with Server(tmp_path, APP, "--interface=justapi") as server:
        assert server.client.get("/health").status_code == 200
        assert server.stop() == 0


@pytest.mark.parametrize("source", [ASGI, "class app: pass", "def app(scope): pass"])
def test_an_application_that_is_not_ours_is_refused_where_ours_is_wanted(
    tmp_path: Path, source: str
) -> None:
    (tmp_path / "app.py").write_text(dedent(source))
    done = run(tmp_path, "serve", "app:app", "--port=0", "--interface=justapi")
    assert done.returncode == 4, done
    assert "JA401" in done.stderr
    assert "app:app is no JustAPIApp" in done.stderr
    assert "--interface asgi" in done.stderr


def test_folders_beside_and_in_place_of_routes(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("the page")
    with Server(tmp_path, APP, f"--static=/={tmp_path}") as server:
        assert server.client.get("/").text == "the page"
        assert server.client.get("/hello").status_code == 200
        assert server.client.get("/nowhere").status_code == 404
        assert server.stop() == 0
    with Server(tmp_path, ASGI, f"--static=/files={tmp_path}") as server:
        assert server.client.get("/files/").text == "the page"
        assert server.client.get("/files").status_code == 308
        assert server.client.post("/files/x").text == "mine /files/x"
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("source", "route", "says"),
    [
        (ASGI, "/", "would hide"),
        (APP, "/hello", "match the same requests"),
    ],
)
def test_a_folder_that_would_hide_the_application_is_refused(
    tmp_path: Path, source: str, route: str, says: str
) -> None:
    (tmp_path / "app.py").write_text(dedent(source))
    done = run(tmp_path, "serve", "app:app", "--port=0", f"--static={route}={tmp_path}")
    assert done.returncode == 4, done
    assert says in done.stderr


def test_a_body_that_is_refused_while_python_reads_it_is_counted_as_what_it_is(
    tmp_path: Path,
) -> None:
    source = """
        from justapi import JustAPI, Request

        app = JustAPI()

        @app.post("/read")
        async def read(request: Request):
            return len(await request.body())

        @app.post("/teapot")
        async def teapot(request: Request):
            from justapi.exceptions import HTTPException
            try:
                await request.body()
            except HTTPException:
                raise HTTPException(418) from None
    """
    with Server(tmp_path, source, "--decompression", "--limit-body", "20MiB") as server:

        def reasons() -> dict[str, int]:
            lines = server.client.get("/metrics").text.splitlines()
            rejected = [one.split() for one in lines if one.startswith("justapi_rejected_total{")]
            return {name.split('"')[1]: int(count) for name, count in rejected if count != "0"}

        bomb = gzip.compress(b"0" * 10_000_000)
        coded = {"content-encoding": "gzip"}
        assert server.client.post("/read", content=bomb, headers=coded).status_code == 413
        assert reasons() == {"decompression_ratio": 1}
        # In pieces, so that nobody knows before that it is too large.
        large = (b"1" * 1_000_000 for _ in range(22))
        assert server.client.post("/read", content=large).status_code == 413
        assert reasons() == {"decompression_ratio": 1, "body": 1}
        # What the application has to say itself is no refusal.
        assert server.client.post("/teapot", content=bomb, headers=coded).status_code == 418
        assert reasons() == {"decompression_ratio": 1, "body": 1}
        assert server.stop() == 0
