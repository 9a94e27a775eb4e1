"""The document equals FastAPI's for the same program, and the pages need nothing else."""

import json
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Annotated

import msgspec
import pydantic
import pytest
from openapi_spec_validator import validate

from justapi import JustAPI
from justapi.openapi import docs
from justapi.testclient import TestClient

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def load(path: Path, *, justapi: bool) -> types.ModuleType:
    """Runs a FastAPI program, with its imports changed or not."""
    source = path.read_text()
    if justapi:
        source = source.replace("from fastapi", "from justapi").replace("FastAPI(", "JustAPI(")
        source = re.sub(r"(from justapi import .*)\bFastAPI\b", r"\1JustAPI", source)
        source = source.replace("justapi.security.base", "justapi.security")
    # Models of one name are told apart by their module, which has to be the same for both.
    module = types.ModuleType(f"programs.{path.stem}")
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def normal(value):
    """Sorts keys all the way down; the order of everything else counts."""
    return json.dumps(value, sort_keys=True, indent=1)


def documents(path: Path, error_format: str = "fastapi"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = load(path, justapi=False).app.openapi()
        app = load(path, justapi=True).app
        app.error_format = error_format
        return app.openapi(), theirs


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_document_equals_fastapis(path):
    ours, theirs = documents(path)
    assert json.loads(normal(ours)) == json.loads(normal(theirs))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("error_format", ["fastapi", "problem"])
def test_the_document_is_valid(path, error_format):
    ours, _ = documents(path, error_format)
    if path.stem == "responses":
        # Items of streams are described as in OpenAPI 3.2, as FastAPI does.
        ours = {**ours, "openapi": "3.2.0"}
    validate(ours)


def test_problem_documents_are_described_as_such():
    ours, theirs = documents(Path(__file__).parent / "programs" / "parameters.py", "problem")
    answer = ours["paths"]["/items/{item_id}"]["get"]["responses"]["422"]
    reference = {"$ref": "#/components/schemas/ValidationProblem"}
    assert answer["content"] == {"application/problem+json": {"schema": reference}}
    assert "HTTPValidationError" not in ours["components"]["schemas"]
    assert set(ours["paths"]) == set(theirs["paths"])


class Item(msgspec.Struct):
    """An item of msgspec."""

    name: str
    price: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    inner: "Item | None" = None


def test_structs_are_described_beside_models():
    class Model(pydantic.BaseModel):
        a: int

    clash = pydantic.create_model("Item", b=(int, 1))
    app = JustAPI(title="t", version="1")

    @app.post("/items")
    def create(item: Item) -> list[Item]: ...

    @app.post("/models")
    def model(model: Model, clash: clash) -> Item: ...

    document = app.openapi()
    validate(document)
    schemas = document["components"]["schemas"]
    assert schemas["Item"]["properties"] == {"b": {"default": 1, "title": "B", "type": "integer"}}
    assert schemas["Item_2"]["description"] == "An item of msgspec."
    assert schemas["Item_2"]["properties"]["price"]["exclusiveMinimum"] == 0
    reference = {"$ref": "#/components/schemas/Item_2"}
    assert reference in schemas["Item_2"]["properties"]["inner"]["anyOf"]
    operation = document["paths"]["/items"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"] == reference
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert (answer["type"], answer["items"]) == ("array", reference)


@pytest.fixture
def client():
    app = JustAPI(title='<Shop> & "more"', version="1", servers=[{"url": "https://api.example"}])

    @app.get("/items")
    def items() -> list[int]:
        return []

    with TestClient(app) as client:
        yield client


def test_the_document_is_served(client):
    response = client.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == client.app.openapi()


PAGES = {"/docs": "SwaggerUIBundle", "/redoc": "spec-url", "/scalar": "createApiReference"}


@pytest.mark.parametrize("page", PAGES)
def test_pages_load_from_the_application_only(client, page):
    response = client.get(page)
    assert PAGES[page] in response.text
    assert "<title>&lt;Shop&gt; &amp; &quot;more&quot; - " in response.text
    assert "//" not in re.sub(r"https?://www.w3.org\S*", "", response.text)
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert policy.endswith("connect-src 'self' data: blob: https://api.example")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', response.text)
    assert len(loaded) >= 2
    for url in loaded:
        asset = client.get(url)
        assert asset.status_code == 200, url
        assert len(asset.content) > 500
        assert "immutable" in asset.headers["cache-control"]
        again = client.get(url, headers={"if-none-match": asset.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_the_page_for_oauth2(client):
    response = client.get("/docs/oauth2-redirect")
    (url,) = re.findall(r'src="([^"]+)"', response.text)
    assert "swaggerUIRedirectOauth2" in client.get(url).text


@pytest.mark.parametrize("name", ["absent.js", "manifest.json", "..%2fdocs.py", "%2e%2e/docs.py"])
def test_only_the_files_of_pages_are_served(client, name):
    assert client.get(f"/_docs/{name}").status_code == 404


def test_below_a_root_path():
    app = JustAPI(title="t", version="1")
    client = TestClient(app, root_path="/api/v1")
    assert client.get("/openapi.json").json()["servers"] == [{"url": "/api/v1"}]
    page = client.get("/docs").text
    assert '"/api/v1/openapi.json"' in page
    assert 'src="/api/v1/_docs/swagger-ui-bundle.js' in page
    app = JustAPI(title="t", version="1", root_path_in_servers=False)
    client = TestClient(app, root_path="/api/v1")
    assert "servers" not in client.get("/openapi.json").json()


def test_a_root_path_cannot_leave_its_place_in_the_page():
    client = TestClient(JustAPI(title="t", version="1"), root_path="/x'\"</script><script>alert(1)")
    for page in PAGES:
        assert "<script>alert" not in client.get(page).text


def test_what_is_turned_off_is_not_there():
    urls = {
        "openapi_url": "/openapi.json",
        "docs_url": "/docs",
        "redoc_url": "/redoc",
        "scalar_url": "/scalar",
    }
    for name, url in urls.items():
        client = TestClient(JustAPI(title="t", version="1", **{name: None}))
        assert client.get(url).status_code == 404
    client = TestClient(JustAPI(title="t", version="1", openapi_url=None))
    for url in [*urls.values(), "/_docs/favicon.png"]:
        assert client.get(url).status_code == 404


def test_pages_of_ones_own():
    page = docs.get_swagger_ui_html(
        openapi_url="/o",
        title="T",
        swagger_js_url="https://cdn.example/s.js",
        swagger_ui_parameters={"deepLinking": False, "</script>": Path("/x")},
        init_oauth={"clientId": "c"},
        oauth2_redirect_url="/r",
    ).body.decode()
    assert 'src="https://cdn.example/s.js"' in page
    assert '"deepLinking": false' in page
    assert '"\\u003c/script\\u003e": "/x"' in page
    assert 'ui.initOAuth({"clientId": "c"})' in page
    assert 'window.location.origin + "/r"' in page
    redoc = docs.get_redoc_html(openapi_url="/o", title="T", with_google_fonts=True).body.decode()
    assert "fonts.googleapis.com" in redoc
    scalar = docs.get_scalar_html(openapi_url="/o", title="T", scalar_parameters={"theme": "x"})
    assert b'"theme": "x"' in scalar.body


def test_ids_that_are_not_unique_are_told():
    app = JustAPI(title="t", version="1")
    for path in ("/a", "/b"):
        app.add_api_route(path, lambda: 1, operation_id="same", name="same")
    with pytest.warns(UserWarning, match="Duplicate Operation ID same"):
        app.openapi()


def test_the_maker_of_documents_is_where_fastapis_is():
    from justapi.openapi.utils import get_openapi

    app = JustAPI()

    @app.get("/items")
    def items() -> list[int]: ...

    document = get_openapi(title="Custom", version="2", routes=app.routes, summary="s")
    assert document["info"] == {"title": "Custom", "version": "2", "summary": "s"}
    assert list(document["paths"]) == ["/items"]
