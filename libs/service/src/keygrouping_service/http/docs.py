"""`/docs`: the OpenAPI document to read and try, with all that the page needs served from here."""

from __future__ import annotations

import html
from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon-32x32.png": "image/png"}
"""Files of Swagger UI that the page needs, and their media types; the package fastapi-swagger brings them."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: nothing from elsewhere, no inline script. Swagger UI sets styles inline."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<main id="docs"></main>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

_START = """SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#docs",
  deepLinking: true,
  validatorUrl: null,
});
"""

_DAY = {"Cache-Control": "max-age=86400"}


def add_docs(app: FastAPI) -> None:
    """Adds `/docs`, its files below it, and `/openapi.json`, as routes like all others.

    All addresses are relative, so the app may lie under a path of a proxy.
    """
    page = _PAGE.format(title=html.escape(app.title))

    @app.get("/openapi.json", include_in_schema=False)
    async def document() -> JSONResponse:
        return JSONResponse(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})

    @app.get("/docs/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript")

    for name, media_type in ASSETS.items():
        _add_file(app, name, media_type)


def _add_file(app: FastAPI, name: str, media_type: str) -> None:
    @app.get(f"/docs/{name}", include_in_schema=False)
    async def file() -> Response:
        content = files("fastapi_swagger").joinpath("resources", name).read_bytes()
        return Response(content, media_type=media_type, headers=_DAY)
