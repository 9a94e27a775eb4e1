"""`Path`, `Query`, `Header`, `Cookie`, `Body`, `Form`, `File`, `Depends` and `Security`.

They are functions that return `Any`, so that `limit: int = Query(10)` is right for type checkers;
what they return is an object of `justapi.params`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic_core import PydanticUndefined
from typing_extensions import Unpack

from justapi import params

__all__ = ["Body", "Cookie", "Depends", "File", "Form", "Header", "Path", "Query", "Security"]


def Path(default: Any = ..., **options: Unpack[params.FieldOptions]) -> Any:  # noqa: N802
    """Declares a parameter out of the path.

    Args:
        default: Always `...`: a path parameter is never absent.
        **options: As for `pydantic.Field`, and `include_in_schema`, `openapi_examples`.

    Example:
        >>> @app.get("/items/{item_id}")
        ... def read_item(item_id: Annotated[int, Path(ge=1)]):
        ...     return item_id
        >>> client.get("/items/3").json()
        3
    """
    return params.Path(default, **options)


def Query(  # noqa: N802
    default: Any = PydanticUndefined, **options: Unpack[params.FieldOptions]
) -> Any:
    """Declares a parameter out of the query string, or a model of several.

    Args:
        default: Its value when it is absent; without one it is required.
        **options: As for `pydantic.Field`, and `include_in_schema`, `openapi_examples`.

    Example:
        >>> @app.get("/items")
        ... def read_items(q: Annotated[str | None, Query(max_length=50)] = None):
        ...     return q
        >>> client.get("/items", params={"q": "ink"}).json()
        'ink'
    """
    return params.Query(default, **options)


def Header(  # noqa: N802
    default: Any = PydanticUndefined, **options: Unpack[params.HeaderOptions]
) -> Any:
    """Declares a parameter out of the request's header, or a model of several.

    Args:
        default: Its value when it is absent; without one it is required.
        **options: As for `Query`; `convert_underscores=False` keeps `_` in the name.

    Example:
        >>> @app.get("/items")
        ... def read_items(user_agent: Annotated[str | None, Header()] = None):
        ...     return user_agent
        >>> client.get("/items", headers={"user-agent": "curl"}).json()
        'curl'
    """
    return params.Header(default, **options)


def Cookie(  # noqa: N802
    default: Any = PydanticUndefined, **options: Unpack[params.FieldOptions]
) -> Any:
    """Declares a parameter out of the cookies, or a model of several.

    Args:
        default: Its value when it is absent; without one it is required.
        **options: As for `Query`.

    Example:
        >>> @app.get("/cart")
        ... def read_cart(cart_id: Annotated[int | None, Cookie()] = None):
        ...     return cart_id
        >>> client.get("/cart", headers={"cookie": "cart_id=7"}).json()
        7
    """
    return params.Cookie(default, **options)


def Body(  # noqa: N802
    default: Any = PydanticUndefined, **options: Unpack[params.BodyOptions]
) -> Any:
    """Declares the JSON body, or one member of it.

    Args:
        default: Its value when it is absent; without one it is required.
        **options: As for `pydantic.Field`; `embed=True` expects the value as a member under the
            parameter's name even when it is the only one.

    Example:
        >>> @app.post("/tags")
        ... def add_tag(name: Annotated[str, Body(embed=True, min_length=1)]):
        ...     return name
        >>> client.post("/tags", json={"name": "red"}).json()
        'red'
    """
    return params.Body(default, **options)


def Form(  # noqa: N802
    default: Any = PydanticUndefined, **options: Unpack[params.FormOptions]
) -> Any:
    """Declares a field of a form, or a model of its fields.

    Args:
        default: Its value when it is absent; without one it is required.
        **options: As for `pydantic.Field`.

    Example:
        >>> @app.post("/login")
        ... def login(username: Annotated[str, Form()], remember: Annotated[bool, Form()] = False):
        ...     return [username, remember]
        >>> client.post("/login", data={"username": "ada", "remember": "on"}).json()
        ['ada', True]
    """
    return params.Form(default, **options)


def File(  # noqa: N802
    default: Any = PydanticUndefined, **options: Unpack[params.FormOptions]
) -> Any:
    """Declares a file of a multipart form: `UploadFile`, or `bytes` to have all of it in memory.

    Args:
        default: Its value when it is absent; without one it is required.
        **options: As for `pydantic.Field`.

    Example:
        >>> @app.post("/photos")
        ... async def add_photo(photo: Annotated[UploadFile, File(description="A picture")]):
        ...     return [photo.filename, len(await photo.read())]
        >>> client.post("/photos", files={"photo": ("a.png", b"pixels")}).json()
        ['a.png', 6]
    """
    return params.File(default, **options)


def Depends(  # noqa: N802
    dependency: Callable[..., Any] | None = None,
    *,
    use_cache: bool = True,
    scope: Literal["function", "request"] | None = None,
    max_concurrency: int | None = None,
) -> Any:
    """Declares a dependency.

    Args:
        dependency: What to call; without one, the parameter's annotation.
        use_cache: Whether one call serves all who need it in a request.
        scope: When a dependency with `yield` ends: `"function"` before the response is sent,
            `"request"` after it.
        max_concurrency: How many calls may run at once; with `yield`, how many may be open.

    Raises:
        ValueError: `max_concurrency` is no positive integer.

    Example:
        >>> @app.get("/me")
        ... def read_me(user: Annotated[User, Depends(current_user)]):
        ...     return user.name
        >>> client.get("/me").json()
        'ada'
    """
    return params.Depends(
        dependency=dependency, use_cache=use_cache, scope=scope, max_concurrency=max_concurrency
    )


def Security(  # noqa: N802
    dependency: Callable[..., Any] | None = None,
    *,
    scopes: Sequence[str] | None = None,
    use_cache: bool = True,
    max_concurrency: int | None = None,
) -> Any:
    """Declares a dependency that needs OAuth2 scopes.

    Args:
        dependency: What to call; without one, the parameter's annotation.
        scopes: The scopes; dependencies see them through a `SecurityScopes` parameter.
        use_cache: Whether one call serves all who need it in a request.
        max_concurrency: As for `Depends`.

    Raises:
        ValueError: `max_concurrency` is no positive integer.

    Example:
        >>> def user(scopes: SecurityScopes):
        ...     return {"needs": scopes.scopes}
        >>> @app.get("/orders")
        ... def read_orders(user: Annotated[dict, Security(user, scopes=["orders"])]):
        ...     return user
        >>> client.get("/orders").json()
        {'needs': ['orders']}
    """
    return params.Security(
        dependency=dependency,
        scopes=scopes,
        use_cache=use_cache,
        max_concurrency=max_concurrency,
    )
