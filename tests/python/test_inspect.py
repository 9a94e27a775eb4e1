"""`justapi routes`, `openapi`, `check` and `doctor` with applications in Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from serving import PROGRAM, Server, eventually, is_alive, run

SHOP = """
    from typing import Annotated
    from justapi import Depends, JustAPI, Request, WebSocket
    from justapi.middleware.gzip import GZipMiddleware
    from justapi.security import SecurityBase
    from pydantic import BaseModel

    print("the application prints this")

    class Item(BaseModel):
        name: str
        price: float = 1.0

    class KeyHeader(SecurityBase):
        scheme_name = "KeyHeader"
        model = {"type": "apiKey", "in": "header", "name": "x-key"}

        def __call__(self, request: Request) -> str:
            return request.headers.get("x-key", "")

    key = KeyHeader()
    app = JustAPI(title="Shop")
    app.add_middleware(GZipMiddleware)

    @app.get("/items/{item_id}")
    async def read_item(item_id: int, key: Annotated[str, Depends(key)]) -> Item:
        return Item(name="pen")

    @app.post("/items", status_code=201)
    def add_item(item: Item) -> Item:
        return item

    @app.get("/slow", blocking=True)
    def slow(): return 1

    @app.get("/constant", native={"a": 1})
    def constant(): ...

    @app.websocket("/ws")
    async def chat(websocket: WebSocket): ...

    inner = JustAPI(openapi_url=None)

    @inner.get("/about")
    def about(): return 1

    app.mount("/inner", inner)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write(tmp_path, SHOP)


def write(folder: Path, source: str, name: str = "app.py") -> Path:
    (folder / name).write_text(dedent(source))
    return folder


def json_of(folder: Path, *arguments: str, status: int = 0) -> Any:
    result = run(folder, *arguments, "--json")
    assert result.returncode == status, result
    return json.loads(result.stdout)


def test_routes_name_their_handlers(shop: Path) -> None:
    table = json_of(shop, "routes", "app:app")
    found = {
        (route["path"], route["runs"], route["handler"], route["protocol"])
        for route in table["routes"]
    }
    assert found == {
        ("/items/{item_id}", "async", "app.read_item", "http"),
        ("/items", "sync", "app.add_item", "http"),
        ("/slow", "threads", "app.slow", "http"),
        ("/constant", "native", "app.constant", "http"),
        ("/ws", "async", "app.chat", "websocket"),
        ("/inner/about", "sync", "app.about", "http"),
    }
    lines = (shop / "app.py").read_text().splitlines()
    for route in table["routes"]:
        assert route["file"] == "app.py"
        # The line is that of the first decorator.
        assert lines[route["line"] - 1].startswith("@"), route
    first = table["routes"][0]
    assert first["security"] == ["KeyHeader"]
    assert table["middleware"] == [
        {"name": "justapi.middleware.gzip.GZipMiddleware", "runs": "rust"}
    ]


def test_the_table_is_for_people(shop: Path) -> None:
    result = run(shop, "routes", "app.py")
    assert result.returncode == 0
    assert "the application prints this" in result.stderr
    assert "the application prints this" not in result.stdout
    line = next(line for line in result.stdout.splitlines() if "/items/{item_id}" in line)
    words = line.split()
    assert words[:4] == ["GET", "/items/{item_id}", "async", "app.read_item"]
    assert words[4].startswith("app.py:")
    assert words[5] == "KeyHeader"
    assert result.stdout.splitlines()[-1].startswith("6 routes, ")


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        (["--method", "post"], ["/items"]),
        (["--method", "WS"], ["/ws"]),
        (["--path", "/items*", "--method", "GET"], ["/items/{item_id}"]),
        (["--runs", "threads"], ["/slow"]),
        (["--path", "/nothing"], []),
    ],
)
def test_filters(shop: Path, arguments: list[str], paths: list[str]) -> None:
    table = json_of(shop, "routes", "app:app", *arguments)
    assert [route["path"] for route in table["routes"]] == paths


def test_an_application_that_closes_what_is_not_its_own_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, "import os, time\nos.closerange(3, 1024)\ntime.sleep(1e9)\n")
    result = run(tmp_path, "routes", "app:app", "--start-timeout", "1s")
    assert result.returncode == 4, result
    assert "app:app was not imported within 1s" in result.stderr


def test_all_routes_hold_the_documentation(shop: Path) -> None:
    table = json_of(shop, "routes", "app:app", "--all")
    own = [route["path"] for route in table["routes"] if route["is_own"]]
    assert {"/openapi.json", "/docs"} <= set(own)


def test_middleware_in_python_is_said(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from justapi import JustAPI
        app = JustAPI()
        @app.middleware("http")
        async def timing(request, call_next): return await call_next(request)
        """,
    )
    result = run(tmp_path, "routes", "app:app")
    assert "middleware  app.timing (python); every request passes through Python" in result.stdout


def test_applications_of_others_are_listed_as_far_as_known(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from fastapi import FastAPI
        app = FastAPI()
        @app.get("/hello")
        def hello(): return 1
        async def plain(scope, receive, send): ...
        """,
    )
    table = json_of(tmp_path, "routes", "app:app")
    assert [(route["path"], route["handler"]) for route in table["routes"]] == [
        ("/hello", "app.hello")
    ]
    assert json.loads(run(tmp_path, "openapi", "app:app").stdout)["paths"].keys() == {"/hello"}
    for command in ("routes", "openapi"):
        result = run(tmp_path, command, "app:plain")
        assert result.returncode == 4
        assert "error[JA403]" in result.stderr
    assert run(tmp_path, "check", "app:plain").returncode == 0
    result = run(tmp_path, "check", "app:plain", "--interface", "justapi")
    assert result.returncode == 1
    assert "none of ours" in result.stdout


def test_the_document_is_the_one_that_is_served_and_always_the_same(tmp_path: Path) -> None:
    with Server(tmp_path, SHOP) as server:
        served = server.client.get("/openapi.json").json()
    texts = set()
    for seed in ("0", "1", "2"):
        result = subprocess.run(
            [PROGRAM, "openapi", "app:app"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        texts.add(result.stdout)
    (text,) = texts
    assert json.loads(text) == served


def test_drift_is_found(shop: Path) -> None:
    written = run(shop, "openapi", "app:app", "--output", "openapi.json")
    assert written.returncode == 0
    assert run(shop, "openapi", "app:app", "--check", "openapi.json").returncode == 0
    write(shop, SHOP.replace("price: float = 1.0", "price: int = 1"))
    result = run(shop, "openapi", "app:app", "--check", "openapi.json")
    assert result.returncode == 1
    place = "components > schemas > Item > properties > price > type"
    assert f'~  {place}: "number" -> "integer"' in result.stdout
    assert "error[JA412]" in result.stderr
    assert "`justapi openapi app:app --output openapi.json`" in result.stderr


def test_a_document_that_cannot_be_made(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from typing import Annotated
        from justapi import JustAPI
        from pydantic import BaseModel, PlainValidator
        class Odd: ...
        class Model(BaseModel, arbitrary_types_allowed=True):
            odd: Odd
        app = JustAPI()
        @app.post("/odd")
        def odd(model: Model): ...
        """,
    )
    result = run(tmp_path, "openapi", "app:app")
    assert result.returncode == 1
    assert "error[JA411]" in result.stderr
    assert "PydanticInvalidForJsonSchema" in result.stderr
    report = json_of(tmp_path, "check", "app:app", status=1)
    (failed,) = [check for check in report["checks"] if check["status"] == "fail"]
    assert failed["message"].startswith("POST /odd cannot be described: ")
    assert failed["place"] == "app.py:9"


def test_what_is_fine_is_fine(shop: Path) -> None:
    report = json_of(shop, "check", "app:app", "--strict")
    assert report["ok"] is True
    assert report["failures"] == report["warnings"] == 0
    assert report["routes"] > 5
    result = run(shop, "check", "app:app")
    assert "ok    application" in result.stdout


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        (
            "@app.get('/a/{x}')\ndef one(x): ...\n@app.get('/a/{y}')\ndef two(y): ...",
            "fail",
            "GET /a/{y} is registered twice, and app.one (app.py:3) answers",
        ),
        (
            "@app.get('a')\ndef one(): ...",
            "fail",
            "no request reaches GET a: its path does not begin with a slash",
        ),
        (
            "@app.get('/a/{x}')\ndef one(): ...",
            "warn",
            "nobody takes the parameter `x` of GET /a/{x}",
        ),
        (
            "from typing import Annotated\nfrom justapi import Path\n"
            "@app.get('/a')\ndef one(x: Annotated[int, Path()]): ...",
            "fail",
            "GET /a takes `x` out of the path, which has no such parameter",
        ),
        (
            "@app.get('/a', operation_id='a')\ndef one(): ...\n"
            "@app.get('/b', operation_id='a')\ndef two(): ...",
            "warn",
            "GET /a and GET /b have one operation id, `a`",
        ),
        (
            "@app.get('/a', responses={404: {'content': {'application/json': "
            "{'schema': {'$ref': '#/components/schemas/No'}}}}})\ndef one(): ...",
            "fail",
            "the document refers to `#/components/schemas/No`, which it does not hold",
        ),
        ("app.debug = True", "warn", "the application has `debug=True`"),
        (
            "def real(): ...\napp.dependency_overrides[real] = lambda: 1",
            "warn",
            "dependencies are overridden outside of tests: app.real",
        ),
        (
            "from justapi.middleware.gzip import GZipMiddleware\n"
            "app.add_middleware(GZipMiddleware, nonsense=1)",
            "fail",
            "the middleware cannot be applied: TypeError",
        ),
    ],
)
def test_faults_are_found(tmp_path: Path, source: str, status: str, message: str) -> None:
    (tmp_path / "app.py").write_text(f"from justapi import JustAPI\napp = JustAPI()\n{source}\n")
    report = json_of(tmp_path, "check", "app:app", status=1 if status == "fail" else 0)
    found = [check for check in report["checks"] if check["status"] != "ok"]
    assert [check["status"] for check in found] == [status], found
    assert found[0]["message"].startswith(message), found
    strict = run(tmp_path, "check", "app:app", "--strict")
    assert strict.returncode == 1


def test_a_setting_that_does_not_go_with_the_application(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    write(
        tmp_path,
        """
        from justapi import JustAPI
        app = JustAPI()
        @app.get("/files/{path:path}")
        def files(path: str): ...
        """,
    )
    assert run(tmp_path, "check", "app:app").returncode == 0
    result = run(tmp_path, "check", "app:app", "--static", "/files=site")
    assert result.returncode == 1
    assert "fail  server" in result.stdout
    served = run(tmp_path, "serve", "app:app", "--port", "0", "--static", "/files=site")
    assert served.returncode == 4, "a worker refuses the same"


def test_nothing_is_opened_or_started(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from contextlib import asynccontextmanager
        from justapi import JustAPI
        @asynccontextmanager
        async def lifespan(app):
            open("started", "w").close()
            yield
        app = JustAPI(lifespan=lifespan)
        if __name__ != "__main__":
            app.run(port=1)
        """,
    )
    for command in ("routes", "openapi", "check"):
        assert run(tmp_path, command, "app:app").returncode == 0
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("command", ["routes", "openapi", "check"])
@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("import nope_nope", "app:app", ["nope_nope", "no module `nope_nope`", "python"]),
        ("x = 1 / 0", "app:app", ["app.py", "ZeroDivisionError"]),
        ("def f(:", "app:app", ["SyntaxError"]),
        ("raise SystemExit(3)", "app:app", ["SystemExit"]),
        ("import os; os.abort()", "app:app", ["killed by SIGABRT"]),
        (
            "application_one = lambda: 1",
            "app:aplication_one",
            ["did you mean `app:application_one`"],
        ),
        ("app = 3", "app.py", ["`app`"]),
        ("app = 3", "ap.py", ["there is no file ap.py", "did you mean `app.py`?"]),
        ("app = 3", "apq:app", ["there is no module 'apq'", "did you mean `app:app`?"]),
        (
            "from justapi import JustAPI\npublic = JustAPI()\nadmin = JustAPI()",
            "app",
            ["2 applications: `public`, `admin`", "choose one, such as `app:public`"],
        ),
    ],
)
def test_applications_that_cannot_be_loaded(
    tmp_path: Path, command: str, source: str, target: str, expected: list[str]
) -> None:
    (tmp_path / "app.py").write_text(f"{source}\n")
    result = run(tmp_path, command, target)
    assert result.returncode == 4, result
    assert result.stdout == ""
    assert "error[JA401]" in result.stderr
    for text in expected:
        assert text in result.stderr, result.stderr
    if "SIGABRT" not in result.stderr:
        # A crash shows every frame.
        assert "justapi/_inspect.py" not in result.stderr
    document = json_of(tmp_path, command, target, status=4)
    assert document["error"]["code"] == "JA401"


def test_the_only_application_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from justapi import JustAPI\nshop = JustAPI()\n")
    assert run(tmp_path, "routes", "shop.py").returncode == 0


def test_an_endless_import_is_given_up_with_all_it_started(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open("pids.part", "w").write(f"{os.getpid()} {child.pid}")
        os.rename("pids.part", "pids")
        time.sleep(600)
        """,
    )
    result = run(tmp_path, "check", "app:app", "--start-timeout", "5s")
    assert result.returncode == 4
    assert "was not imported within 5s" in result.stderr
    for pid in (tmp_path / "pids").read_text().split():
        eventually(f"{pid} ends", lambda pid=pid: not is_alive(int(pid)))


def test_the_import_ends_with_the_command(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os, time
        open("pid.part", "w").write(str(os.getpid()))
        os.rename("pid.part", "pid")
        time.sleep(600)
        """,
    )
    process = subprocess.Popen([PROGRAM, "routes", "app:app"], cwd=tmp_path)
    try:
        eventually("it imports", (tmp_path / "pid").exists)
        process.send_signal(signal.SIGKILL)
        pid = int((tmp_path / "pid").read_text())
        eventually("the import has ended", lambda: not is_alive(pid))
    finally:
        process.kill()
        process.wait()


def test_threads_of_the_application_keep_nobody(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import threading
        from justapi import JustAPI
        threading.Thread(target=threading.Event().wait).start()
        app = JustAPI()
        """,
    )
    started = time.monotonic()
    assert run(tmp_path, "routes", "app:app").returncode == 0
    assert time.monotonic() - started < 50


def test_places_and_names_that_need_care(tmp_path: Path) -> None:
    folder = tmp_path / "a b'ü$x" / "src"
    folder.mkdir(parents=True)
    write(folder, SHOP, "main.py")
    above = folder.parent
    assert json_of(above, "routes", "src/main.py")["routes"]
    assert json_of(above, "routes", "main:app", "--app-dir", "src")["routes"]
    written = run(above, "openapi", "src/main.py", "--output", "the document.json")
    assert written.returncode == 0, written
    assert json.loads((above / "the document.json").read_text())["info"]["title"] == "Shop"


def test_the_doctor_knows_the_environment(shop: Path) -> None:
    report = json_of(shop, "doctor", "app:app")
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["python"]["status"] == "ok"
    assert str(Path(sys.executable).parent.resolve()) in checks["python"]["message"]
    assert "pydantic 2" in checks["packages"]["message"]
    assert checks["application"]["status"] == "ok"
    write(shop, "import nope_nope")
    report = json_of(shop, "doctor", "app:app", status=1)
    (failed,) = [check for check in report["checks"] if check["status"] == "fail"]
    assert failed["name"] == "application"
    assert "nope_nope" in failed["message"]
