"""URLs, headers and multi-dicts behave as Starlette's do, and refuse what would break a message."""

from __future__ import annotations

import pytest
import starlette.datastructures as theirs

import justapi.datastructures as ours
from asgi import make_scope

SCOPES = [
    make_scope("/a b/ü", query=b"x=1&y=%20"),
    make_scope("/a?b#c\\d"),
    make_scope("//double"),
    make_scope("/", scheme="https", server=("example.org", 443)),
    make_scope("/p", headers=[("host", "ignored")]),
]
HOSTS = [
    "example.org",
    "example.org:8000",
    "example.org:99999",
    "a/b?x",
    "user@host",
    "[::1]:80",
    "[::1",
    "[zz]",
    "",
    "a b",
    "xn--bcher-kva.example",
    "host:080",
]


@pytest.mark.parametrize("scope", SCOPES)
def test_url_of_a_scope(scope):
    assert str(ours.URL(scope=dict(scope))) == str(theirs.URL(scope=dict(scope)))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("server", [("10.0.0.1", 8000), ("::1", 80), None])
def test_a_host_header_never_changes_more_than_the_authority(host, server):
    scope = make_scope("/path", query=b"q=1", server=server)
    scope["headers"] = [(b"host", host.encode())]
    url = ours.URL(scope=scope)
    assert str(url) == str(theirs.URL(scope=scope))
    assert (url.path, url.query) == ("/path", "q=1")


REPLACEMENTS = [
    {"scheme": "https"},
    {"port": None},
    {"port": 9},
    {"hostname": "other"},
    {"hostname": "::1"},
    {"username": "me"},
    {"username": "me", "password": "secret"},
    {"path": "/new", "query": "z=1", "fragment": "top"},
    {"username": None},
]


@pytest.mark.parametrize("changes", REPLACEMENTS)
@pytest.mark.parametrize("url", ["http://u:p@host:80/a?b=1#c", "https://[::1]:8443/", "/relative"])
def test_replacing_parts(url, changes):
    assert repr(ours.URL(url).replace(**changes)) == repr(theirs.URL(url).replace(**changes))


def test_query_parameters_of_urls():
    for url in ("http://h/p?a=1&b=2&a=3", "http://h/p"):
        for method, args, kwargs in [
            ("include_query_params", (), {"a": 9, "c": "x y"}),
            ("replace_query_params", (), {"n": 1}),
            ("remove_query_params", ("a",), {}),
            ("remove_query_params", (["a", "b"],), {}),
        ]:
            mine = getattr(ours.URL(url), method)(*args, **kwargs)
            assert str(mine) == str(getattr(theirs.URL(url), method)(*args, **kwargs))


@pytest.mark.parametrize("path", ["/x", "//evil.example/x", "/a\\b"])
@pytest.mark.parametrize("protocol", ["", "http", "websocket"])
@pytest.mark.parametrize("base", ["https://host/base/", "http://host"])
def test_url_paths_become_absolute(path, protocol, base):
    mine = ours.URLPath(path, protocol).make_absolute_url(base)
    assert str(mine) == str(theirs.URLPath(path, protocol).make_absolute_url(base))


MULTI_DICT_CHANGES = [
    lambda d: d.__setitem__("a", "9"),
    lambda d: d.__delitem__("a"),
    lambda d: d.pop("a"),
    lambda d: d.pop("zz", 5),
    lambda d: d.popitem(),
    lambda d: d.poplist("a"),
    lambda d: d.clear(),
    lambda d: d.setdefault("a", "7"),
    lambda d: d.setdefault("n", "7"),
    lambda d: d.setlist("a", ["x", "y"]),
    lambda d: d.setlist("a", []),
    lambda d: d.append("a", "z"),
    lambda d: d.update({"a": "q"}, n="m"),
]


@pytest.mark.parametrize("change", MULTI_DICT_CHANGES)
def test_multi_dict_changes(change):
    results = []
    for module in (ours, theirs):
        value = module.MultiDict([("a", "1"), ("b", "2"), ("a", "3")])
        returned = change(value)
        results.append((returned, value.multi_items(), dict(value), len(value)))
    assert results[0] == results[1]


def test_query_params_and_form_data():
    for source in ("a=1&a=2&b=&c", b"a=%FF&n=%C3%A9", {"a": 1}, [("a", 1), ("a", 2)], ""):
        mine, other = ours.QueryParams(source), theirs.QueryParams(source)
        assert (str(mine), repr(mine), mine.multi_items(), dict(mine)) == (
            str(other),
            repr(other),
            other.multi_items(),
            dict(other),
        )
    assert ours.QueryParams("a=1&b=2") == ours.QueryParams("b=2&a=1")
    assert ours.FormData({"a": "1"}).getlist("a") == ["1"]


HEADER_CHANGES = [
    lambda h: h.__setitem__("A", "9"),
    lambda h: h.__setitem__("New", "9"),
    lambda h: h.__delitem__("a"),
    lambda h: h.__delitem__("absent"),
    lambda h: h.append("a", "4"),
    lambda h: h.setdefault("a", "4"),
    lambda h: h.setdefault("n", "4"),
    lambda h: h.update({"A": "5", "Z": "6"}),
    lambda h: h.__ior__({"q": "1"}).raw,
    lambda h: (h | {"q": "1"}).raw,
    lambda h: h.add_vary_header("Origin"),
    lambda h: h.getlist("a"),
    lambda h: repr(h),
    lambda h: "A" in h,
    lambda h: h.get("nö"),
    lambda h: h.mutablecopy().raw,
]


@pytest.mark.parametrize("change", HEADER_CHANGES)
def test_header_changes(change):
    results = []
    for module in (ours, theirs):
        raw = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
        headers = module.MutableHeaders(raw=raw)
        results.append((change(headers), headers.items(), len(headers)))
        assert headers.raw == raw
    assert results[0] == results[1]


BAD_VALUES = ["a\r\nb", "a\nb", "a\rb", "a\0b", "€", "a\x7f", "\x1b[0m"]
BAD_NAMES = ["", "a b", "a:b", "a\n", "ä", "a\0"]


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_that_breaks_a_message_is_refused(value):
    headers = ours.MutableHeaders(raw=[])
    for attempt in (
        lambda: ours.Headers({"x": value}),
        lambda: headers.__setitem__("x", value),
        lambda: headers.append("x", value),
        lambda: headers.setdefault("x", value),
        lambda: headers.update({"x": value}),
    ):
        with pytest.raises(ValueError, match="header"):
            attempt()
    assert headers.raw == []


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_token_is_refused(name):
    with pytest.raises(ValueError, match="header"):
        ours.MutableHeaders(raw=[])[name] = "x"


def test_latin_1_and_tabs_are_allowed():
    assert ours.Headers({"X": "caf\xe9\tbar"}).raw == [(b"x", b"caf\xe9\tbar")]


def test_state_is_attributes_over_a_dict():
    inner = {"a": 1}
    state = ours.State(inner)
    state.b = 2
    state["c"] = 3
    del state.a
    assert inner == {"b": 2, "c": 3} == dict(state._state)
    assert list(state) == ["b", "c"]
    with pytest.raises(AttributeError, match="'State' object has no attribute 'a'"):
        _ = state.a
