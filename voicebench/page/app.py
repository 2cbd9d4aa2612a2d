"""The page's addresses (docs/page.md)."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from voicebench.page.assets import Asset
from voicebench.page.feed import Feed, FullError
from voicebench.page.guard import HEADERS, MAX_BODY_BYTES, PAGE_POLICY, REPORT_POLICY, Guard, RefusedError
from voicebench.page.source import NotNowError, Source

FILE_TYPES = {
    "report.html": "text/html; charset=utf-8",
    "report.md": "text/plain; charset=utf-8",
    "report.json": "application/json",
    "junit.xml": "text/plain; charset=utf-8",
}
"""The reports, by name: nothing else of a run's folder can be had."""


class _Stop(msgspec.Struct, forbid_unknown_fields=True):
    how: str = "drain"


def make_app(source: Source, feed: Feed, guard: Guard, assets: Mapping[str, Asset]) -> Flask:
    """The application that shows one run."""
    app = Flask("voicebench.page", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.before_request(lambda: guard.check(request))
    app.after_request(_with_headers)
    app.register_error_handler(RefusedError, lambda error: _refusal(str(error), error.status))
    app.register_error_handler(NotNowError, lambda error: _refusal(str(error), 409))
    app.register_error_handler(HTTPException, lambda error: _refusal(str(error.description), error.code or 500))
    app.register_error_handler(Exception, _own_fault)
    _add_page(app, assets)
    _add_api(app, source, feed)
    return app


def _add_page(app: Flask, assets: Mapping[str, Asset]) -> None:
    @app.get("/")
    def index() -> Response:
        return _asset(assets, "index.html")

    @app.get("/<path:name>")
    def asset(name: str) -> Response:
        return _asset(assets, name)


def _add_api(app: Flask, source: Source, feed: Feed) -> None:
    @app.get("/api/run")
    def run() -> Response:
        return _json(source.history())

    @app.get("/api/snapshot")
    def snapshot() -> Response:
        picture = source.picture
        if picture is None:
            raise NotNowError("the master has only just started: there is no snapshot yet")
        return _json(picture.snapshot)

    @app.get("/api/events")
    def events() -> Response:
        try:
            stream = feed.stream()
        except FullError:
            return _refusal("too many pages are open: this one asks every two seconds instead", 503)
        return Response(stream, mimetype="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/api/start")
    def start() -> Response:
        source.start()
        return _json(b"{}")

    @app.post("/api/stop")
    def stop() -> Response:
        try:
            how = msgspec.json.decode(request.get_data() or b"{}", type=_Stop).how
        except msgspec.DecodeError as error:
            return _refusal(f"the body is not as it should be: {error}", 400)
        if how not in ("drain", "cut"):
            return _refusal('"how" is drain or cut', 400)
        source.stop("cut" if how == "cut" else "drain")
        return _json(b"{}")

    @app.get("/files/<name>")
    def report_file(name: str) -> Response:
        path = source.file(name) if name in FILE_TYPES else None
        if path is None:
            return _refusal(f"there is no {name} here: reports are written when the run is over", 404)
        response = Response(path.read_bytes(), content_type=FILE_TYPES[name])
        response.headers["Content-Security-Policy"] = REPORT_POLICY
        return response


def _asset(assets: Mapping[str, Asset], name: str) -> Response:
    asset = assets.get(name)
    if asset is None:
        return _refusal(f"there is no {name} here", 404)
    response = Response(content_type=asset.media_type)
    response.set_etag(asset.etag, weak=True)  # the same for both encodings
    response.headers["Cache-Control"] = "no-cache"
    response.headers["Vary"] = "Accept-Encoding"
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.set_data(asset.compressed)
        response.headers["Content-Encoding"] = "gzip"
    else:
        response.set_data(asset.content)
    response.make_conditional(request)
    return response


def _json(document: bytes, status: int = 200) -> Response:
    return Response(document, status, {"Cache-Control": "no-store"}, content_type="application/json")


def _refusal(why: str, status: int) -> Response:
    return _json(msgspec.json.encode({"error": why}), status)


def _with_headers(response: Response) -> Response:
    for name, value in {**HEADERS, "Content-Security-Policy": PAGE_POLICY}.items():
        response.headers.setdefault(name, value)
    return response


def _own_fault(error: Exception) -> Any:
    traceback.print_exception(error)  # on stderr: the run goes on without this answer
    return _refusal("the master could not answer this; its terminal says why", 500)
