"""The pages that show the document: Swagger UI, ReDoc and Scalar.

What they load comes with this package and is served by the application itself; nothing is
fetched from anywhere else. The functions have FastAPI's signatures, for applications that make
these pages themselves.
"""

from __future__ import annotations

import html
import json
from typing import Any

from justapi.encoders import jsonable_encoder
from justapi.responses import HTMLResponse

__all__ = [
    "ASSETS_PATH",
    "get_redoc_html",
    "get_scalar_html",
    "get_swagger_ui_html",
    "get_swagger_ui_oauth2_redirect_html",
    "swagger_ui_default_parameters",
]

ASSETS_PATH = "/_docs"
"""Where an application serves the files of the pages."""

swagger_ui_default_parameters: dict[str, Any] = {
    "dom_id": "#swagger-ui",
    "layout": "BaseLayout",
    "deepLinking": True,
    "showExtensions": True,
    "showCommonExtensions": True,
}
"""Configuration of Swagger UI, a template for one's own."""


def _json(value: Any) -> str:
    """Returns JSON that can stand in a script of a page."""
    text = json.dumps(jsonable_encoder(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _page(title: str, favicon_url: str, head: str, body: str) -> HTMLResponse:
    return HTMLResponse(
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f'<link rel="shortcut icon" href="{html.escape(favicon_url)}">\n'
        f"{head}</head>\n<body>\n{body}</body>\n</html>\n"
    )


def get_swagger_ui_html(
    *,
    openapi_url: str,
    title: str,
    swagger_js_url: str = f"{ASSETS_PATH}/swagger-ui-bundle.js",
    swagger_css_url: str = f"{ASSETS_PATH}/swagger-ui.css",
    swagger_favicon_url: str = f"{ASSETS_PATH}/favicon.png",
    oauth2_redirect_url: str | None = None,
    init_oauth: dict[str, Any] | None = None,
    swagger_ui_parameters: dict[str, Any] | None = None,
) -> HTMLResponse:
    """Returns the page of Swagger UI.

    Args:
        openapi_url: URL of the document.
        title: Title of the page.
        swagger_js_url: URL of Swagger UI's script.
        swagger_css_url: URL of Swagger UI's style sheet.
        swagger_favicon_url: URL of the icon.
        oauth2_redirect_url: Where OAuth2 providers send the user back to.
        init_oauth: Configuration of OAuth2.
        swagger_ui_parameters: Configuration of Swagger UI beside the default one.
    """
    parameters = {**swagger_ui_default_parameters, **(swagger_ui_parameters or {})}
    lines = [f"{_json(key)}: {_json(value)}," for key, value in parameters.items()]
    if oauth2_redirect_url:
        lines.append(f"oauth2RedirectUrl: window.location.origin + {_json(oauth2_redirect_url)},")
    options = "\n  ".join(lines)
    start_oauth = f"ui.initOAuth({_json(init_oauth)});\n" if init_oauth else ""
    return _page(
        title,
        swagger_favicon_url,
        f'<link rel="stylesheet" href="{html.escape(swagger_css_url)}">\n',
        '<div id="swagger-ui"></div>\n'
        f'<script src="{html.escape(swagger_js_url)}"></script>\n'
        "<script>\n"
        "const ui = SwaggerUIBundle({\n"
        f"  url: {_json(openapi_url)},\n"
        f"  {options}\n"
        "  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],\n"
        "});\n"
        f"{start_oauth}</script>\n",
    )


def get_redoc_html(
    *,
    openapi_url: str,
    title: str,
    redoc_js_url: str = f"{ASSETS_PATH}/redoc.standalone.js",
    redoc_favicon_url: str = f"{ASSETS_PATH}/favicon.png",
    with_google_fonts: bool = False,
) -> HTMLResponse:
    """Returns the page of ReDoc.

    Args:
        openapi_url: URL of the document.
        title: Title of the page.
        redoc_js_url: URL of ReDoc's script.
        redoc_favicon_url: URL of the icon.
        with_google_fonts: Whether the page loads its fonts from Google.
    """
    head = "<style>body { margin: 0; padding: 0; }</style>\n"
    if with_google_fonts:
        head += (
            '<link rel="stylesheet" href="https://fonts.googleapis.com/css'
            '?family=Montserrat:300,400,700|Roboto:300,400,700">\n'
        )
    return _page(
        title,
        redoc_favicon_url,
        head,
        "<noscript>ReDoc requires Javascript to function. "
        "Please enable it to browse the documentation.</noscript>\n"
        f'<redoc spec-url="{html.escape(openapi_url)}"></redoc>\n'
        f'<script src="{html.escape(redoc_js_url)}"></script>\n',
    )


def get_scalar_html(
    *,
    openapi_url: str,
    title: str,
    scalar_js_url: str = f"{ASSETS_PATH}/scalar.standalone.js",
    scalar_favicon_url: str = f"{ASSETS_PATH}/favicon.png",
    scalar_parameters: dict[str, Any] | None = None,
) -> HTMLResponse:
    """Returns the page of Scalar.

    Args:
        openapi_url: URL of the document.
        title: Title of the page.
        scalar_js_url: URL of Scalar's script.
        scalar_favicon_url: URL of the icon.
        scalar_parameters: Configuration of Scalar beside the default one, which turns off what
            would talk to Scalar's own services.
    """
    configuration = {
        "url": openapi_url,
        "telemetry": False,
        "withDefaultFonts": False,
        "hideClientButton": True,
        "showDeveloperTools": "never",
        "agent": {"disabled": True},
        "mcp": {"disabled": True},
        **(scalar_parameters or {}),
    }
    return _page(
        title,
        scalar_favicon_url,
        "",
        '<div id="scalar"></div>\n'
        f'<script src="{html.escape(scalar_js_url)}"></script>\n'
        f"<script>Scalar.createApiReference('#scalar', {_json(configuration)});</script>\n",
    )


def get_swagger_ui_oauth2_redirect_html(
    script_url: str = f"{ASSETS_PATH}/oauth2-redirect.js",
) -> HTMLResponse:
    """Returns the page that OAuth2 providers send the user of Swagger UI back to.

    Args:
        script_url: URL of the script that hands the answer over to Swagger UI.
    """
    return HTMLResponse(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<title>Swagger UI: OAuth2 Redirect</title>\n'
        f'</head>\n<body>\n<script src="{html.escape(script_url)}"></script>\n</body>\n</html>\n'
    )
