"""The table of routes of the ASGI path: which route answers a method and path.

A trie over the segments of patterns, as core's router is, with Starlette's whole grammar: a
segment may mix text and parameters (`/{name}.json`), and a `path` parameter may stand anywhere
and be empty. Segments are split before they are decoded, so an encoded slash stays in its
segment. Segment by segment from the left, text goes before mixtures, uuid, int, float, plain
parameters and `path`; a choice that leads nowhere is given up for the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import unquote, unquote_to_bytes

from justapi._paths import CONVERTORS

__all__ = ["Outcome", "RouteTable"]

Outcome: TypeAlias = tuple[Any, ...]
Params: TypeAlias = dict[str, str]

_PARAMETER = re.compile(r"{([a-zA-Z_][a-zA-Z0-9_]*)(?::([a-zA-Z_][a-zA-Z0-9_]*))?}")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RANKS = {"uuid": 1, "int": 2, "float": 3, "str": 4}
_MIXED_RANK = 0


class _Node:
    """What patterns have in common up to a slash.

    Attributes:
        literals: The next segment is this text.
        choices: The next segment matches this expression; best rank first.
        tails: The whole rest matches this expression; most specific first.
        routes: Values by method for patterns that end here; None stands for all methods.
    """

    __slots__ = ("choices", "literals", "routes", "tails")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.choices: list[tuple[int, re.Pattern[str], _Node]] = []
        self.tails: list[tuple[int, re.Pattern[str], dict[str | None, Any]]] = []
        self.routes: dict[str | None, Any] = {}


def _expression(text: str, *, is_tail: bool = False) -> re.Pattern[str]:
    """Makes an expression of a segment of a pattern, or of its tail."""
    expression = ""
    position = 0
    for match in _PARAMETER.finditer(text):
        kind = match[2] or "str"
        # A segment may hold a decoded slash.
        inner = ".+" if kind == "str" and not is_tail else CONVERTORS[kind].regex
        expression += re.escape(text[position : match.start()]) + f"(?P<{match[1]}>{inner})"
        position = match.end()
    return re.compile(expression + re.escape(text[position:]), re.DOTALL)


class RouteTable:
    """Maps a method and a path to a value."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, methods: list[str] | None, pattern: str, value: Any) -> None:
        """Adds a route. What an earlier one answers already stays with that one.

        Args:
            methods: Its methods; None for all.
            pattern: Pattern of the path, beginning with a slash.
            value: What `find` gives back.
        """
        routes = self._routes_of(pattern)
        for method in [None] if methods is None else methods:
            routes.setdefault(method, value)

    def _routes_of(self, pattern: str) -> dict[str | None, Any]:
        node = self._root
        rest = pattern.removeprefix("/")
        while True:
            segment, slash, after = rest.partition("/")
            if ":path}" in segment:
                return _tail_of(node, rest)
            node = _child_of(node, segment)
            if not slash:
                return node.routes
            rest = after

    def _matches(
        self, node: _Node, segments: list[str], index: int
    ) -> Iterator[tuple[dict[str | None, Any], Params]]:
        """Yields all routes of a path, best first."""
        if index == len(segments):
            if node.routes:
                yield node.routes, {}
        else:
            segment = segments[index]
            literal = node.literals.get(segment)
            if literal is not None:
                yield from self._matches(literal, segments, index + 1)
            for _, expression, child in node.choices:
                match = expression.fullmatch(segment)
                if match is not None:
                    for routes, params in self._matches(child, segments, index + 1):
                        yield routes, {**match.groupdict(), **params}
        if node.tails and index < len(segments):
            # No segment has a NUL, so it may stand for the slashes that are part of one.
            rest = "/".join([part.replace("/", "\0") for part in segments[index:]])
            for _, expression, routes in node.tails:
                match = expression.fullmatch(rest)
                if match is not None:
                    params = match.groupdict()
                    yield routes, {name: text.replace("\0", "/") for name, text in params.items()}

    def find(self, method: str, path: str | bytes) -> Outcome:
        """Finds the route of a percent-encoded path.

        Returns:
            `("found", value, params)`, `("not_found",)`, `("method_not_allowed", methods)`,
            `("options", methods)`, `("redirect", path)` or `("bad_path",)`.
        """
        text = path.decode("latin-1") if isinstance(path, bytes) else path
        segments = _decode(text)
        if segments is None:
            return ("bad_path",)
        allowed: set[str] = set()
        for routes, params in self._matches(self._root, segments, 0):
            value = _value_for(method, routes)
            if value is not _NOTHING:
                return ("found", value, params)
            allowed.update(name for name in routes if name is not None)
        if allowed:
            if "GET" in allowed:
                allowed.add("HEAD")
            kind = "options" if method == "OPTIONS" else "method_not_allowed"
            return (kind, sorted({*allowed, "OPTIONS"}))
        other = text.rstrip("/") if text.endswith("/") else f"{text}/"
        # Two slashes at the beginning would name another host.
        if other and not other.startswith("//"):
            found = _decode(other)
            if found is not None and next(self._matches(self._root, found, 0), None) is not None:
                return ("redirect", other)
        return ("not_found",)


_NOTHING = object()


def _value_for(method: str, routes: dict[str | None, Any]) -> Any:
    for name in (method, "GET" if method == "HEAD" else method, None):
        if name in routes:
            return routes[name]
    return _NOTHING


def _decode(text: str) -> list[str] | None:
    """Splits a path into decoded segments.

    Returns:
        The segments; None when the path is not percent-encoded UTF-8 or has a NUL.
    """
    if "%" not in text and text.isascii() and "\0" not in text:
        return text.removeprefix("/").split("/")
    if _BAD_ESCAPE.search(text) or "%00" in text or "\0" in text:
        return None
    try:
        raw = text.encode("latin-1")
        return [unquote_to_bytes(part).decode() for part in raw.removeprefix(b"/").split(b"/")]
    except UnicodeError:
        return None


def _child_of(node: _Node, segment: str) -> _Node:
    if "{" not in segment:
        return node.literals.setdefault(unquote(segment), _Node())
    only = _PARAMETER.fullmatch(segment)
    rank = _MIXED_RANK if only is None else _RANKS[only[2] or "str"]
    expression = _expression(segment)
    for known_rank, known, child in node.choices:
        if (known_rank, known.pattern) == (rank, expression.pattern):
            return child
    child = _Node()
    node.choices.append((rank, expression, child))
    node.choices.sort(key=lambda choice: choice[0])
    return child


def _tail_of(node: _Node, rest: str) -> dict[str | None, Any]:
    expression = _expression(rest, is_tail=True)
    for _, known, routes in node.tails:
        if known.pattern == expression.pattern:
            return routes
    made: dict[str | None, Any] = {}
    # More text is more specific.
    node.tails.append((-len(_PARAMETER.sub("", rest)), expression, made))
    node.tails.sort(key=lambda tail: tail[0])
    return made
