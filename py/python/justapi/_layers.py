"""Says which middleware the lane does itself, in Rust, with the same answers.

Guarantee: what the lane is told comes from the middleware objects themselves, so both forms of a
middleware have one reading of its arguments; whatever is unusual about them stays in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from justapi.middleware import Middleware
from justapi.middleware.cors import CORSMiddleware
from justapi.middleware.gzip import THREAD_MINIMUM_SIZE, GZipMiddleware
from justapi.middleware.httpsredirect import HTTPSRedirectMiddleware
from justapi.middleware.trustedhost import TrustedHostMiddleware

__all__ = ["Layer", "layers_of", "run_python"]

Fields: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class CorsLayer:
    """`CORSMiddleware` as the lane wants it."""

    names_origin: bool
    allows_all_origins: bool
    origins: list[bytes]
    matches: Callable[[str], Any] | None
    methods: list[bytes]
    allows_all_headers: bool
    headers: list[bytes]
    allows_private_network: bool
    simple: Fields
    preflight: Fields
    kind: str = "cors"


@dataclass(frozen=True)
class GzipLayer:
    """`GZipMiddleware` as the lane wants it."""

    minimum_size: int
    level: int
    one_go_size: int
    excluded: list[bytes]
    kind: str = "gzip"


@dataclass(frozen=True)
class HostsLayer:
    """`TrustedHostMiddleware` as the lane wants it; `refuse` makes its redirects."""

    hosts: list[bytes]
    refuse: Callable[[Any], Any] | None
    kind: str = "hosts"


@dataclass(frozen=True)
class HttpsLayer:
    """`HTTPSRedirectMiddleware` as the lane wants it."""

    redirect: Callable[[Any], Any]
    kind: str = "https"


Layer: TypeAlias = CorsLayer | GzipLayer | HostsLayer | HttpsLayer


class _StaysInPython(Exception):
    """The lane cannot do this middleware with the same answers."""


def layers_of(middleware: Sequence[Middleware]) -> list[Layer] | None:
    """Returns the layers of a middleware stack, outermost first; None if it stays in Python.

    It is one or the other for the whole stack: what stands around or inside of middleware in
    Python is done there, too, so that the order is kept.
    """
    layers: list[Layer] = []
    try:
        for one in middleware:
            layers.extend(_layers_of(one))
    except _StaysInPython:
        return None
    return layers


def run_python(layers: Iterable[Layer]) -> bool:
    """Whether a request may need Python for its middleware."""
    for layer in layers:
        if isinstance(layer, HttpsLayer):
            return True
        if isinstance(layer, HostsLayer) and layer.refuse is not None:
            return True
        if isinstance(layer, CorsLayer) and layer.matches is not None:
            return True
    return False


def _layers_of(middleware: Middleware) -> list[Layer]:
    # A subclass may do anything.
    make = _MAKERS.get(middleware.cls)
    if make is None:
        raise _StaysInPython
    try:
        made = middleware.cls(_nowhere, *middleware.args, **middleware.kwargs)
        layer = make(made)
    except Exception as error:
        # Arguments that are wrong are said when the application starts.
        raise _StaysInPython from error
    return [] if layer is None else [layer]


async def _nowhere(*_: Any) -> None:
    """Stands for the application, which these objects never call."""


def _octets(texts: Any) -> list[bytes]:
    """Returns ASCII texts as they are on the wire."""
    # `in` means something else for a text, and anything may have its own `__contains__`.
    if type(texts) not in (list, tuple, set, frozenset):
        raise _StaysInPython
    return [text.encode("ascii") for text in texts]


def _fields(fields: dict[str, str]) -> Fields:
    return [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in fields.items()]


def _cors(made: CORSMiddleware) -> Layer:
    regex = made.allow_origin_regex
    return CorsLayer(
        names_origin=made._names_origin,
        allows_all_origins=made.allow_all_origins,
        origins=_octets(made.allow_origins),
        # Python's own expressions, and not a library's that reads them a little differently.
        matches=None if regex is None or made.allow_all_origins else regex.fullmatch,
        methods=_octets(made.allow_methods),
        allows_all_headers=made.allow_all_headers,
        headers=_octets(made.allow_headers),
        allows_private_network=bool(made.allow_private_network),
        simple=_fields(made._simple),
        preflight=_fields(made._preflight),
    )


def _gzip(made: GZipMiddleware) -> Layer:
    level, size = made.compresslevel, made.minimum_size
    if level not in range(1, 10) or not isinstance(size, int):
        raise _StaysInPython
    return GzipLayer(
        minimum_size=max(size, 0),
        level=level,
        one_go_size=THREAD_MINIMUM_SIZE,
        excluded=_octets(made.exclude_content_types),
    )


def _hosts(made: TrustedHostMiddleware) -> Layer | None:
    if made.allow_any:
        return None
    has_www = made.www_redirect and any(host.startswith("www.") for host in made.allowed_hosts)
    return HostsLayer(
        hosts=_octets(made.allowed_hosts), refuse=made.refusal_of if has_www else None
    )


def _https(made: HTTPSRedirectMiddleware) -> Layer:
    return HttpsLayer(redirect=made.redirect_of)


_MAKERS: dict[Any, Callable[[Any], Layer | None]] = {
    CORSMiddleware: _cors,
    GZipMiddleware: _gzip,
    TrustedHostMiddleware: _hosts,
    HTTPSRedirectMiddleware: _https,
}
