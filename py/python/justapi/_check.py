"""What of an application would fail in production although it can be imported.

Guarantee: nothing is served and nothing of the application's runs but what makes its routes, its
middleware and its document; the routes are given to a lane without a socket, as a worker does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from justapi import _core
from justapi._api_route import APIRoute
from justapi._inspect import name_of, place_of
from justapi._lane import Served, new_event_loop, routes_of
from justapi._paths import lacks_slash, route_key
from justapi._plain_routes import APIWebSocketRoute, Mount, WebSocketRoute
from justapi._tracebacks import users_frames
from justapi.app import JustAPIApp
from justapi.dependencies import Dependant, iter_dependants
from justapi.openapi.utils import get_openapi

__all__ = ["Finding", "findings_of"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or odd.

    Attributes:
        level: `"fail"` for what fails in production, `"warn"` for what is probably not meant.
        name: What it is about, in a word.
        message: What is wrong.
        hint: What to do.
        place: File and line of the handler or of the fault.
    """

    level: Literal["fail", "warn"]
    name: str
    message: str
    hint: str | None = None
    place: tuple[str | None, int | None] = (None, None)

    def as_json(self) -> dict[str, Any]:
        """Returns it as a JSON object."""
        return {
            "level": self.level,
            "name": self.name,
            "message": self.message,
            "hint": self.hint,
            "file": self.place[0],
            "line": self.place[1],
        }


def findings_of(app: Any, given: dict[str, Any]) -> list[Finding]:
    """Looks at an application.

    Args:
        app: The application.
        given: What the program has said; `config` has the settings of the server.
    """
    interface = given.get("interface")
    if interface == "justapi" and not isinstance(app, JustAPIApp):
        message = "the application is none of ours, as `--interface justapi` demands"
        return [Finding("fail", "application", message, "leave the option out")]
    if not isinstance(app, JustAPIApp) or interface == "asgi":
        return list(_lane_faults(app, given))
    broken: set[int] = set()
    found = [*_plan_faults(app, broken), *_without_slash(app), *_unreachable(app)]
    found += _parameter_faults(app)
    found += [*_document_faults(app), *_middleware_faults(app), *_left_from_development(app)]
    if not broken:
        # A route that cannot be compiled has been said, and the lane would say it again.
        found += _lane_faults(app, given)
    return found


def _named(route: Any) -> str:
    if isinstance(route, WebSocketRoute | APIWebSocketRoute):
        return f"WebSocket {route.path}"
    if isinstance(route, Mount):
        return f"mount {route.path or '/'}"
    methods = getattr(route, "methods", None)
    return f"{'|'.join(methods) if methods else '*'} {route.path}"


def _place(route: Any) -> tuple[str | None, int | None]:
    return place_of(getattr(route, "endpoint", None))


def _shown(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place_of_error(error: BaseException) -> tuple[str | None, int | None]:
    frames = users_frames(error)
    if frames is None:
        return None, None
    while frames.tb_next is not None:
        frames = frames.tb_next
    return frames.tb_frame.f_code.co_filename, frames.tb_lineno


def _plan_faults(app: JustAPIApp, broken: set[int]) -> Iterator[Finding]:
    """Compiles each route, as a worker does when it starts."""
    for route in app.routes:
        make: Callable[[], Any]
        if isinstance(route, APIRoute):
            make = partial(app.plan_of, route)
        elif isinstance(route, APIWebSocketRoute):
            make = route.compile
        else:
            continue
        try:
            make()
        except Exception as error:
            broken.add(id(route))
            yield Finding(
                "fail",
                "route",
                f"{_named(route)} cannot be compiled: {_shown(error)}",
                "a worker of `justapi serve` would not start",
                _place(route),
            )


def _without_slash(app: JustAPIApp) -> Iterator[Finding]:
    """Finds routes whose path is none that a request can have."""
    for route in app.routes:
        if not isinstance(route, Mount) and lacks_slash(route.path):
            yield Finding(
                "fail",
                "route",
                f"no request reaches {_named(route)}: its path does not begin with a slash",
                f"write the path as `/{route.path}`",
                _place(route),
            )


def _unreachable(app: JustAPIApp) -> Iterator[Finding]:
    """Finds routes whose requests an earlier one answers."""
    first: dict[tuple[str, str], Any] = {}
    for route in app.routes:
        methods = getattr(route, "methods", None)
        if isinstance(route, WebSocketRoute | APIWebSocketRoute):
            kinds = ["WebSocket"]
        elif isinstance(route, Mount):
            kinds = ["mount"]
        else:
            kinds = list(methods) if methods else ["*"]
        taken = [(kind, first[key]) for kind in kinds if (key := (kind, _key(route))) in first]
        for kind in kinds:
            first.setdefault((kind, _key(route)), route)
        if not taken:
            continue
        names = "|".join(kind for kind, _ in taken)
        file, line = _place(taken[0][1])
        where = "" if file is None else f" ({file}:{line})"
        other = name_of(getattr(taken[0][1], "endpoint", None) or getattr(taken[0][1], "app", None))
        yield Finding(
            "fail",
            "route",
            f"{names} {route.path or '/'} is registered twice, and {other}{where} answers",
            "give one of them another path or method, or remove it",
            _place(route),
        )


def _key(route: Any) -> str:
    return route_key(route.path)


def _parameter_faults(app: JustAPIApp) -> Iterator[Finding]:
    """Compares the parameters of paths with those that handlers take."""
    for route in app.routes:
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            continue
        if isinstance(route, APIRoute) and route.native_plan is not None:
            continue
        in_path = set(route.param_convertors)
        taken = _path_names(route.dependant)
        for name in sorted(taken - in_path):
            yield Finding(
                "fail",
                "parameter",
                f"{_named(route)} takes `{name}` out of the path, which has no such parameter: "
                "every request is refused",
                f"write the path with `{{{name}}}`",
                _place(route),
            )
        if _takes_request(route.dependant):
            continue
        for name in sorted(in_path - taken):
            yield Finding(
                "warn",
                "parameter",
                f"nobody takes the parameter `{name}` of {_named(route)}",
                f"add `{name}` to the handler's parameters, or remove it from the path",
                _place(route),
            )


def _path_names(dependant: Dependant) -> set[str]:
    return {item.wire_name for one in iter_dependants(dependant) for item in one.path_params}


def _takes_request(dependant: Dependant) -> bool:
    return any(
        one.request_param_name or one.http_connection_param_name or one.websocket_param_name
        for one in iter_dependants(dependant)
    )


def _document_faults(app: JustAPIApp) -> Iterator[Finding]:
    """Makes the document, which otherwise fails when somebody asks for it."""
    if not app.openapi_url:
        return
    try:
        document = app.openapi()
        json.dumps(document, allow_nan=False)
    except Exception as error:
        found = list(_undocumented(app))
        if found:
            yield from found
            return
        yield Finding(
            "fail",
            "document",
            f"{app.openapi_url} cannot be made: {_shown(error)}",
            "`justapi openapi` shows the traceback",
            _place_of_error(error),
        )
        return
    yield from _same_ids(app)
    for reference in sorted(_dangling(document)):
        yield Finding(
            "fail",
            "document",
            f"the document refers to `{reference}`, which it does not hold",
            "look for it in `openapi_extra=` and `responses=`",
        )


def _undocumented(app: JustAPIApp) -> Iterator[Finding]:
    """Finds the routes whose document cannot be made by itself."""
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        try:
            document = get_openapi(title="one", version="0", routes=[route])
            json.dumps(document, allow_nan=False)
        except Exception as error:
            yield Finding(
                "fail",
                "document",
                f"{_named(route)} cannot be described: {_shown(error)}",
                "give the type a JSON Schema, or the route `include_in_schema=False`",
                _place(route),
            )


def _same_ids(app: JustAPIApp) -> Iterator[Finding]:
    """Finds operations of one id, of which generated clients keep one."""
    first: dict[str, APIRoute] = {}
    for route in app.routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        other = first.setdefault(route.unique_id, route)
        # The same path and method have been said already.
        if other is route or (_key(other) == _key(route) and other.methods == route.methods):
            continue
        yield Finding(
            "warn",
            "document",
            f"{_named(other)} and {_named(route)} have one operation id, `{route.unique_id}`",
            "give one of them another `operation_id=`",
            _place(route),
        )


def _dangling(document: Any) -> set[str]:
    """Returns the references into the document that lead nowhere."""
    missing: set[str] = set()
    rest = [document]
    while rest:
        node = rest.pop()
        if isinstance(node, list):
            rest.extend(node)
        elif isinstance(node, dict):
            rest.extend(node.values())
            reference = node.get("$ref")
            if (
                isinstance(reference, str)
                and reference.startswith("#/")
                and not _leads_somewhere(document, reference)
            ):
                missing.add(reference)
    return missing


def _leads_somewhere(document: Any, reference: str) -> bool:
    node = document
    for part in reference[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def _middleware_faults(app: JustAPIApp) -> Iterator[Finding]:
    """Applies the middleware, which otherwise happens at the first request."""
    try:
        app.build_middleware_stack()
    except Exception as error:
        yield Finding(
            "fail",
            "middleware",
            f"the middleware cannot be applied: {_shown(error)}",
            "every request would be answered with 500",
            _place_of_error(error),
        )


def _left_from_development(app: JustAPIApp) -> Iterator[Finding]:
    if app.debug:
        yield Finding(
            "warn",
            "debug",
            "the application has `debug=True`: clients are shown what handlers raise",
            "leave it out in production",
        )
    if app.dependency_overrides:
        names = ", ".join(sorted(name_of(call) for call in app.dependency_overrides))
        yield Finding(
            "warn",
            "overrides",
            f"dependencies are overridden outside of tests: {names}",
            "set `dependency_overrides` in the tests",
        )


_NO_SERVER: Final = ("testserver", 80)


def _lane_faults(app: Any, given: dict[str, Any]) -> Iterator[Finding]:
    """Gives the routes and the settings to a lane without a socket, as a worker would."""
    loop, selector = new_event_loop()
    redirects = bool(getattr(getattr(app, "router", None), "redirect_slashes", False))
    try:
        _core.Lane(
            loop,
            selector.fileno(),
            [],
            Served(app, {}, server=_NO_SERVER),
            routes_of(app),
            redirects,
            json.dumps(given.get("config", {})),
        )
    except ValueError as error:
        yield Finding(
            "fail",
            "server",
            str(error),
            "`justapi config show --origin` says where each setting comes from",
        )
    except Exception as error:
        yield Finding(
            "fail", "server", f"the routes cannot be served: {_shown(error)}", None, (None, None)
        )
    finally:
        loop.close()
