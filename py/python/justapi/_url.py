"""URLs: what a request asked for, and what `url_for` makes.

A Host header that is not a plain authority is ignored: it can never change the path, the query
or the routing that a URL shows.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from justapi.types import Scope

# RFC 3986 section 3.2.2: a name, or an IP literal in brackets, then a port.
_AUTHORITY = re.compile(
    r"(?P<host>[a-z0-9._~%!$&'()*+,;=\-]+|\[(?P<literal>[^\]\[/?#@\s]+)\])(?::(?P<port>[0-9]+))?",
    re.IGNORECASE | re.ASCII,
)
_FUTURE_LITERAL = re.compile(r"v[0-9a-f]+\.[a-z0-9._~!$&'()*+,;=:\-]+", re.IGNORECASE | re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_HOST_PARTS = frozenset({"username", "password", "hostname", "port"})


def _is_authority(host: str) -> bool:
    match = _AUTHORITY.fullmatch(host)
    if match is None:
        return False
    port = match["port"]
    if port is not None and (len(port.lstrip("0")) > 5 or int(port) > 65535):
        return False
    literal = match["literal"]
    if literal is None or _FUTURE_LITERAL.fullmatch(literal):
        return True
    try:
        ipaddress.IPv6Address(literal)
    except ValueError:
        return False
    return "%" not in literal


def _scope_netloc(scope: Scope, scheme: str) -> str | None:
    for name, value in scope["headers"]:
        if name == b"host":
            host: str = value.decode("latin-1")
            if _is_authority(host):
                return host
            break
    server = scope.get("server")
    if server is None:
        return None
    host, port = server
    if port is None:
        return None
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return host if port == _DEFAULT_PORTS.get(scheme) else f"{host}:{port}"


def _url_of_scope(scope: Scope) -> str:
    scheme = scope.get("scheme", "http")
    path = scope["path"].replace("?", "%3F").replace("#", "%23").replace("\\", "%5C")
    query = scope.get("query_string", b"").decode("latin-1")
    netloc = _scope_netloc(scope, scheme)
    if netloc is not None:
        return SplitResult(scheme, netloc, path, query, "").geturl()
    if path.startswith("//"):
        # Without a host these two slashes would begin an authority.
        path = "/%2F" + path[2:]
    return f"{path}?{query}" if query else str(path)


class URL:
    """A URL with its parts.

    Args:
        url: The text of the URL.
        scope: An ASGI scope whose URL is wanted, in place of `url`.
        **components: Parts of the URL, in place of `url`: scheme, netloc, path, query, fragment,
            username, password, hostname, port.

    Raises:
        TypeError: More than one of the three was given.

    Example:
        >>> URL("http://example.org/a?b=1").include_query_params(c=2)
        URL('http://example.org/a?b=1&c=2')
    """

    def __init__(self, url: str = "", scope: Scope | None = None, **components: Any) -> None:
        if bool(url) + (scope is not None) + bool(components) > 1:
            raise TypeError("give one of: url, scope, components")
        if scope is not None:
            url = _url_of_scope(scope)
        elif components:
            url = URL().replace(**components)._url
        self._url: str = url
        self._components: SplitResult | None = None

    @property
    def components(self) -> SplitResult:
        """The parts, as `urllib.parse.urlsplit` gives them."""
        if self._components is None:
            self._components = urlsplit(self._url)
        return self._components

    @property
    def scheme(self) -> str:
        """`http`, `https`, `ws` or `wss`."""
        return self.components.scheme

    @property
    def netloc(self) -> str:
        """User, host and port as they stand in the URL."""
        return self.components.netloc

    @property
    def path(self) -> str:
        """The path, beginning with `/`."""
        return self.components.path

    @property
    def query(self) -> str:
        """What follows `?`, not decoded."""
        return self.components.query

    @property
    def fragment(self) -> str:
        """What follows `#`."""
        return self.components.fragment

    @property
    def username(self) -> str | None:
        """The user name, if there is one."""
        return self.components.username

    @property
    def password(self) -> str | None:
        """The password, if there is one."""
        return self.components.password

    @property
    def hostname(self) -> str | None:
        """The host in lower case, without brackets and port."""
        return self.components.hostname

    @property
    def port(self) -> int | None:
        """The port, if the URL names one."""
        return self.components.port

    @property
    def is_secure(self) -> bool:
        """Whether the scheme is `https` or `wss`."""
        return self.scheme in ("https", "wss")

    def replace(self, **kwargs: Any) -> URL:
        """Returns a URL with some parts changed.

        Args:
            **kwargs: The parts, as in the constructor.
        """
        if not _HOST_PARTS.isdisjoint(kwargs):
            user, _, host = self.netloc.rpartition("@")
            hostname = kwargs.pop("hostname", None)
            port = kwargs.pop("port", self.port)
            username = kwargs.pop("username", self.username)
            password = kwargs.pop("password", self.password)
            if hostname is None:
                hostname = host if host.endswith("]") else host.rsplit(":", 1)[0]
            elif _is_bare_ipv6(hostname):
                hostname = f"[{hostname}]"
            netloc = hostname if port is None else f"{hostname}:{port}"
            if username is not None:
                user = username if password is None else f"{username}:{password}"
                netloc = f"{user}@{netloc}"
            kwargs["netloc"] = netloc
        return type(self)(self.components._replace(**kwargs).geturl())

    def include_query_params(self, **kwargs: Any) -> URL:
        """Returns a URL whose query also has these parameters; they replace those of their name."""
        kept = [
            pair for pair in parse_qsl(self.query, keep_blank_values=True) if pair[0] not in kwargs
        ]
        return self.replace(query=urlencode(kept + [(k, str(v)) for k, v in kwargs.items()]))

    def replace_query_params(self, **kwargs: Any) -> URL:
        """Returns a URL whose query is these parameters."""
        return self.replace(query=urlencode([(k, str(v)) for k, v in kwargs.items()]))

    def remove_query_params(self, keys: str | Sequence[str]) -> URL:
        """Returns a URL whose query has no parameter of these names."""
        names = {keys} if isinstance(keys, str) else set(keys)
        kept = [
            pair for pair in parse_qsl(self.query, keep_blank_values=True) if pair[0] not in names
        ]
        return self.replace(query=urlencode(kept))

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self._url)

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        shown = self._url
        if self.password:
            shown = self.replace(password="********")._url
        return f"{type(self).__name__}({shown!r})"


def _is_bare_ipv6(hostname: str) -> bool:
    if ":" not in hostname or hostname.startswith("["):
        return False
    try:
        ipaddress.IPv6Address(hostname)
    except ValueError:
        return False
    return True


class URLPath(str):
    """The path that `url_path_for` found, with the protocol and host of its route if they are set.

    Args:
        path: The path.
        protocol: `http`, `websocket` or empty.
        host: A host that the route belongs to, or empty.
    """

    protocol: Literal["http", "websocket", ""]
    host: str

    def __new__(
        cls, path: str, protocol: Literal["http", "websocket", ""] = "", host: str = ""
    ) -> URLPath:
        path = path.replace("\\", "%5C")
        if path.startswith("//"):
            path = "/%2F" + path[2:]
        made = super().__new__(cls, path)
        made.protocol = protocol
        made.host = host
        return made

    def make_absolute_url(self, base_url: str | URL) -> URL:
        """Returns the URL of this path below a base.

        Args:
            base_url: Where the application is reached.
        """
        base = URL(base_url) if isinstance(base_url, str) else base_url
        scheme = base.scheme
        if self.protocol == "http":
            scheme = "https" if base.is_secure else "http"
        elif self.protocol == "websocket":
            scheme = "wss" if base.is_secure else "ws"
        return URL(
            scheme=scheme,
            netloc=self.host or base.netloc,
            path=base.path.rstrip("/") + str(self),
        )
