"""The values that requests and responses are made of, with the interface that Starlette gave them.

Headers are kept as the list of byte pairs that ASGI passes, and are decoded when they are asked
for. A header that is set here is valid: names are tokens, values are latin-1 without control
characters.
"""

from __future__ import annotations

from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

from justapi._header_fields import encode_name, encode_value
from justapi._upload_file import UploadFile
from justapi._url import URL, URLPath
from justapi.types import Scope

__all__ = [
    "URL",
    "Address",
    "FormData",
    "Headers",
    "ImmutableMultiDict",
    "MultiDict",
    "MutableHeaders",
    "QueryParams",
    "State",
    "URLPath",
    "UploadFile",
]

K = TypeVar("K")
V = TypeVar("V", covariant=True)


class Address(NamedTuple):
    """Host and port of a peer."""

    host: str
    port: int


class ImmutableMultiDict(Mapping[K, V], Generic[K, V]):
    """A mapping whose keys may have several values; a look-up gives the last one.

    Args:
        *args: At most one source: a mapping, another multi-dict, or pairs.
        **kwargs: Further items, where keys are strings.

    Raises:
        TypeError: More than one source was given.
    """

    _dict: dict[K, V]
    _list: list[tuple[K, V]]

    def __init__(
        self,
        *args: ImmutableMultiDict[K, V] | Mapping[K, V] | Iterable[tuple[K, V]],
        **kwargs: Any,
    ) -> None:
        if len(args) > 1:
            raise TypeError(f"at most one source, not {len(args)}")
        items: list[tuple[Any, Any]] = []
        if args and args[0]:
            source: Any = args[0]
            if isinstance(source, ImmutableMultiDict):
                items = list(source._list)
            elif hasattr(source, "multi_items"):
                items = list(source.multi_items())
            elif hasattr(source, "items"):
                items = list(source.items())
            else:
                items = list(source)
        items.extend(kwargs.items())
        self._list = items
        self._dict = dict(items)

    def getlist(self, key: Any) -> list[V]:
        """Returns all values of a key, in order."""
        return [value for name, value in self._list if name == key]

    def keys(self) -> KeysView[K]:
        """Returns the keys, each once."""
        return self._dict.keys()

    def values(self) -> ValuesView[V]:
        """Returns the last value of each key."""
        return self._dict.values()

    def items(self) -> ItemsView[K, V]:
        """Returns each key with its last value."""
        return self._dict.items()

    def multi_items(self) -> list[tuple[K, V]]:
        """Returns all pairs in order."""
        return list(self._list)

    def __getitem__(self, key: K) -> V:
        return self._dict[key]

    def __contains__(self, key: object) -> bool:
        return key in self._dict

    def __iter__(self) -> Iterator[K]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return False
        return sorted(self._list, key=_first) == sorted(other._list, key=_first)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._list!r})"


_first: Any = itemgetter(0)


class MultiDict(ImmutableMultiDict[Any, Any]):
    """A multi-dict that can be changed."""

    def __setitem__(self, key: Any, value: Any) -> None:
        self.setlist(key, [value])

    def __delitem__(self, key: Any) -> None:
        del self._dict[key]
        self._list = [pair for pair in self._list if pair[0] != key]

    def pop(self, key: Any, default: Any = None) -> Any:
        """Removes a key with all its values and returns the last one, or `default`."""
        self._list = [pair for pair in self._list if pair[0] != key]
        return self._dict.pop(key, default)

    def popitem(self) -> tuple[Any, Any]:
        """Removes the newest key with all its values; returns it with its last value.

        Raises:
            KeyError: There is none.
        """
        key, value = self._dict.popitem()
        self._list = [pair for pair in self._list if pair[0] != key]
        return key, value

    def poplist(self, key: Any) -> list[Any]:
        """Removes a key and returns all its values."""
        values = self.getlist(key)
        self.pop(key)
        return values

    def clear(self) -> None:
        """Removes everything."""
        self._dict.clear()
        self._list.clear()

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Returns the last value of a key, after setting it if the key was absent."""
        if key not in self._dict:
            self.append(key, default)
        return self._dict[key]

    def setlist(self, key: Any, values: list[Any]) -> None:
        """Replaces all values of a key; none removes it."""
        kept = [pair for pair in self._list if pair[0] != key]
        self._list = kept + [(key, value) for value in values]
        if values:
            self._dict[key] = values[-1]
        else:
            self._dict.pop(key, None)

    def append(self, key: Any, value: Any) -> None:
        """Adds a value to those of a key."""
        self._list.append((key, value))
        self._dict[key] = value

    def update(
        self, *args: MultiDict | Mapping[Any, Any] | list[tuple[Any, Any]], **kwargs: Any
    ) -> None:
        """Replaces the values of each key that the argument has."""
        new = MultiDict(*args, **kwargs)
        self._list = [pair for pair in self._list if pair[0] not in new] + new._list
        self._dict.update(new._dict)


class QueryParams(ImmutableMultiDict[str, str]):
    """The parameters of a query string, decoded.

    Args:
        *args: At most one source: a query string as text or bytes, a mapping, or pairs.
        **kwargs: Further parameters.

    Example:
        >>> QueryParams("tag=a&tag=b").getlist("tag")
        ['a', 'b']
    """

    def __init__(
        self,
        *args: ImmutableMultiDict[Any, Any]
        | Mapping[Any, Any]
        | Iterable[tuple[Any, Any]]
        | str
        | bytes,
        **kwargs: Any,
    ) -> None:
        source: Any = args[0] if args else ()
        if isinstance(source, bytes):
            source = source.decode("latin-1")
        if isinstance(source, str):
            source = parse_qsl(source, keep_blank_values=True)
        super().__init__(source, *args[1:], **kwargs)  # type: ignore[arg-type]
        self._list = [(str(key), str(value)) for key, value in self._list]
        self._dict = dict(self._list)

    def __str__(self) -> str:
        return urlencode(self._list)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class FormData(ImmutableMultiDict[str, "UploadFile | str"]):
    """The fields and files of a form."""

    async def close(self) -> None:
        """Closes all files, which removes what was spooled to disk."""
        for _, value in self._list:
            if isinstance(value, UploadFile):
                await value.close()


class Headers(Mapping[str, str]):
    """Headers of a message: names without regard to case, each possibly more than once.

    Args:
        headers: A mapping of names to values.
        raw: Pairs of bytes with names in lower case, taken as they are.
        scope: An ASGI scope whose headers are wanted.

    Raises:
        TypeError: More than one of the three was given.
        ValueError: A name or value of `headers` is not valid in a message.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        raw: list[tuple[bytes, bytes]] | None = None,
        scope: Scope | None = None,
    ) -> None:
        if (headers is not None) + (raw is not None) + (scope is not None) > 1:
            raise TypeError("give one of: headers, raw, scope")
        self._list: list[tuple[bytes, bytes]]
        if headers is not None:
            self._list = [
                (encode_name(name), encode_value(name, value)) for name, value in headers.items()
            ]
        elif raw is not None:
            self._list = raw
        elif scope is not None:
            found = scope["headers"]
            if not isinstance(found, list):
                found = scope["headers"] = list(found)
            self._list = found
        else:
            self._list = []

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        """The pairs of bytes."""
        return list(self._list)

    def keys(self) -> list[str]:  # type: ignore[override]
        """Returns all names in order, a repeated one as often as it is there."""
        return [name.decode("latin-1") for name, _ in self._list]

    def values(self) -> list[str]:  # type: ignore[override]
        """Returns all values in order."""
        return [value.decode("latin-1") for _, value in self._list]

    def items(self) -> list[tuple[str, str]]:  # type: ignore[override]
        """Returns all pairs in order."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._list]

    def getlist(self, key: str) -> list[str]:
        """Returns all values of a name, in order."""
        wanted = _lookup_name(key)
        return [value.decode("latin-1") for name, value in self._list if name == wanted]

    def mutablecopy(self) -> MutableHeaders:
        """Returns a copy that can be changed."""
        return MutableHeaders(raw=list(self._list))

    def __getitem__(self, key: str) -> str:
        wanted = _lookup_name(key)
        for name, value in self._list:
            if name == wanted:
                return value.decode("latin-1")
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        wanted = _lookup_name(key)
        return any(name == wanted for name, _ in self._list)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._list)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and sorted(self._list) == sorted(other._list)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        as_dict = dict(self.items())
        if len(as_dict) == len(self._list):
            return f"{type(self).__name__}({as_dict!r})"
        return f"{type(self).__name__}(raw={self._list!r})"


def _lookup_name(key: str) -> bytes:
    # What no header can be called is in no list; it need not be an error to ask.
    return key.lower().encode("latin-1", "replace")


class MutableHeaders(Headers):
    """Headers that can be changed, in place of the list that they were made from."""

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        """The pairs of bytes: the list itself."""
        return self._list

    def __setitem__(self, key: str, value: str) -> None:
        name, encoded = encode_name(key), encode_value(key, value)
        positions = [index for index, pair in enumerate(self._list) if pair[0] == name]
        if not positions:
            self._list.append((name, encoded))
            return
        self._list[positions[0]] = (name, encoded)
        for index in reversed(positions[1:]):
            del self._list[index]

    def __delitem__(self, key: str) -> None:
        name = _lookup_name(key)
        # In place: a response's `raw_headers` is this list.
        self._list[:] = [pair for pair in self._list if pair[0] != name]

    def __ior__(self, other: Mapping[str, str]) -> MutableHeaders:
        if not isinstance(other, Mapping):
            raise TypeError(f"expected a mapping but got {type(other).__name__}")
        self.update(other)
        return self

    def __or__(self, other: Mapping[str, str]) -> MutableHeaders:
        if not isinstance(other, Mapping):
            raise TypeError(f"expected a mapping but got {type(other).__name__}")
        merged = self.mutablecopy()
        merged.update(other)
        return merged

    def setdefault(self, key: str, value: str) -> str:
        """Sets a header unless it is there; returns its value.

        Raises:
            ValueError: Name or value is not valid in a message.
        """
        name = encode_name(key)
        for present, found in self._list:
            if present == name:
                return found.decode("latin-1")
        self._list.append((name, encode_value(key, value)))
        return value

    def update(self, other: Mapping[str, str]) -> None:
        """Sets each header of a mapping.

        Raises:
            ValueError: A name or value is not valid in a message.
        """
        for key, value in other.items():
            self[key] = value

    def append(self, key: str, value: str) -> None:
        """Adds a header without touching others of its name.

        Raises:
            ValueError: Name or value is not valid in a message.
        """
        self._list.append((encode_name(key), encode_value(key, value)))

    def add_vary_header(self, vary: str) -> None:
        """Adds a name to `Vary`.

        Raises:
            ValueError: The name is not valid in a message.
        """
        self["vary"] = ", ".join([*self.getlist("vary"), vary])


class State:
    """A place for what an application keeps: attributes over a dict.

    Args:
        state: The dict to work on; a new one by default.

    Example:
        >>> app.state.motto = "It will arrive."
        >>> app.state.motto
        'It will arrive.'
    """

    _state: dict[str, Any]

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        object.__setattr__(self, "_state", {} if state is None else state)

    def __setattr__(self, key: str, value: Any) -> None:
        self._state[key] = value

    def __getattr__(self, key: str) -> Any:
        try:
            return self._state[key]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {key!r}"
            ) from None

    def __delattr__(self, key: str) -> None:
        try:
            del self._state[key]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {key!r}"
            ) from None

    def __getitem__(self, key: str) -> Any:
        return self._state[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._state[key] = value

    def __delitem__(self, key: str) -> None:
        del self._state[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)
