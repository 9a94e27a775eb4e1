"""What an application offers of its document: the document itself, its pages, their files."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from justapi.exceptions import HTTPException
from justapi.openapi import docs
from justapi.requests import Request
from justapi.responses import FileResponse, JSONResponse, Response

if TYPE_CHECKING:
    from justapi.openapi._operations import ErrorFormat

__all__ = ["DocumentedApplication", "add_documentation_routes", "document_of"]

ASSETS = Path(__file__).parent / "assets"

_MEDIA_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".txt": "text/plain",
}


class DocumentedApplication(Protocol):
    """What is asked of an application here; the names are FastAPI's."""

    title: str
    version: str
    openapi_version: str
    summary: str | None
    description: str
    terms_of_service: str | None
    contact: dict[str, Any] | None
    license_info: dict[str, Any] | None
    openapi_tags: list[dict[str, Any]] | None
    servers: list[dict[str, Any]]
    separate_input_output_schemas: bool
    openapi_external_docs: dict[str, Any] | None
    error_format: ErrorFormat
    openapi_url: str | None
    docs_url: str | None
    redoc_url: str | None
    scalar_url: str | None
    swagger_ui_oauth2_redirect_url: str | None
    swagger_ui_init_oauth: dict[str, Any] | None
    swagger_ui_parameters: dict[str, Any] | None
    root_path_in_servers: bool
    webhooks: Any

    @property
    def routes(self) -> list[Any]:
        """The routes."""

    def openapi(self) -> dict[str, Any]:
        """Returns the document."""

    def add_route(self, path: str, route: Any, *, include_in_schema: bool = ...) -> Any:
        """Adds a function of the request."""


def document_of(app: DocumentedApplication) -> dict[str, Any]:
    """Returns the document of an application, made anew.

    Args:
        app: The application.
    """
    # What describes an application is loaded when somebody asks for the document.
    from justapi.openapi._document import get_openapi

    return get_openapi(
        title=app.title,
        version=app.version,
        openapi_version=app.openapi_version,
        summary=app.summary,
        description=app.description,
        terms_of_service=app.terms_of_service,
        contact=app.contact,
        license_info=app.license_info,
        routes=app.routes,
        webhooks=app.webhooks.routes,
        tags=app.openapi_tags,
        servers=app.servers,
        separate_input_output_schemas=app.separate_input_output_schemas,
        external_docs=app.openapi_external_docs,
        error_format=app.error_format,
    )


def add_documentation_routes(app: DocumentedApplication) -> None:
    """Adds the document, the pages that are wanted, and their files to an application.

    Args:
        app: The application. Without a URL for the document nothing is added.
    """
    document_url = app.openapi_url
    if not document_url:
        return

    async def openapi(request: Request) -> Response:
        return JSONResponse(_with_root_path(app, _root_path(request)))

    app.add_route(document_url, openapi, include_in_schema=False)
    if not (app.docs_url or app.redoc_url or app.scalar_url):
        return
    app.add_route(f"{docs.ASSETS_PATH}/{{name}}", _asset, include_in_schema=False)

    if app.docs_url:
        redirect_url = app.swagger_ui_oauth2_redirect_url

        async def swagger_ui_html(request: Request) -> Response:
            root = _root_path(request)
            return _guarded(
                app,
                docs.get_swagger_ui_html(
                    openapi_url=root + document_url,
                    title=f"{app.title} - Swagger UI",
                    swagger_js_url=_asset_url(root, "swagger-ui-bundle.js"),
                    swagger_css_url=_asset_url(root, "swagger-ui.css"),
                    swagger_favicon_url=_asset_url(root, "favicon.png"),
                    oauth2_redirect_url=root + redirect_url if redirect_url else None,
                    init_oauth=app.swagger_ui_init_oauth,
                    swagger_ui_parameters=app.swagger_ui_parameters,
                ),
            )

        app.add_route(app.docs_url, swagger_ui_html, include_in_schema=False)
        if redirect_url:

            async def swagger_ui_redirect(request: Request) -> Response:
                script_url = _asset_url(_root_path(request), "oauth2-redirect.js")
                return docs.get_swagger_ui_oauth2_redirect_html(script_url)

            app.add_route(redirect_url, swagger_ui_redirect, include_in_schema=False)

    if app.redoc_url:

        async def redoc_html(request: Request) -> Response:
            root = _root_path(request)
            return _guarded(
                app,
                docs.get_redoc_html(
                    openapi_url=root + document_url,
                    title=f"{app.title} - ReDoc",
                    redoc_js_url=_asset_url(root, "redoc.standalone.js"),
                    redoc_favicon_url=_asset_url(root, "favicon.png"),
                ),
            )

        app.add_route(app.redoc_url, redoc_html, include_in_schema=False)

    if app.scalar_url:

        async def scalar_html(request: Request) -> Response:
            root = _root_path(request)
            return _guarded(
                app,
                docs.get_scalar_html(
                    openapi_url=root + document_url,
                    title=f"{app.title} - Scalar",
                    scalar_js_url=_asset_url(root, "scalar.standalone.js"),
                    scalar_favicon_url=_asset_url(root, "favicon.png"),
                ),
            )

        app.add_route(app.scalar_url, scalar_html, include_in_schema=False)


def _root_path(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def _with_root_path(app: DocumentedApplication, root: str) -> dict[str, Any]:
    document = app.openapi()
    if not root or not app.root_path_in_servers:
        return document
    servers = document.get("servers", [])
    if root in {server.get("url") for server in servers}:
        return document
    return {**document, "servers": [{"url": root}, *servers]}


@lru_cache(maxsize=1)
def _manifest() -> dict[str, str]:
    """Returns the files of the pages with their hashes; none in a build without them."""
    try:
        files: dict[str, str] = json.loads((ASSETS / "manifest.json").read_text())["files"]
    except FileNotFoundError:
        return {}
    return files


def _asset_url(root: str, name: str) -> str:
    # With the hash in its URL a file can be kept for good.
    return f"{root}{docs.ASSETS_PATH}/{name}?v={_manifest().get(name, '')[:12]}"


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    sha256 = _manifest().get(name)
    if sha256 is None:
        if not _manifest():
            raise HTTPException(
                404, "this build has no documentation assets: run py/fetch_docs_assets.py"
            )
        raise HTTPException(404)
    path = ASSETS / name
    return FileResponse(
        path,
        media_type=_MEDIA_TYPES[path.suffix],
        headers={"cache-control": "public, max-age=31536000, immutable", "etag": f'"{sha256}"'},
    )


def _guarded(app: DocumentedApplication, page: Response) -> Response:
    """Lets a page load from the application only, and talk to the API's servers only."""
    origins = " ".join(sorted(_origins(app.openapi())))
    page.headers["content-security-policy"] = (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob: https: http:; "
        "font-src 'self' data:; worker-src 'self' blob:; "
        f"connect-src 'self' data: blob: {origins}".rstrip()
    )
    return page


def _origins(document: dict[str, Any]) -> set[str]:
    """Returns the origins that a page has to reach: of servers, and of those who give tokens."""
    urls = [server.get("url", "") for server in document.get("servers", ())]
    schemes = document.get("components", {}).get("securitySchemes", {})
    for scheme in schemes.values():
        urls.append(scheme.get("openIdConnectUrl", ""))
        for flow in scheme.get("flows", {}).values():
            urls += [flow.get("tokenUrl", ""), flow.get("refreshUrl", "")]
    origins = set()
    for url in urls:
        parts = urlsplit(url)
        if "{" in parts.netloc or any(character in url for character in " ;,\"'"):
            # A template may become anything.
            return {"https:", "http:"}
        if parts.scheme in ("http", "https") and parts.netloc:
            origins.add(f"{parts.scheme}://{parts.netloc}")
    return origins
