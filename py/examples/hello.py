"""The smallest application. Run it: `justapi serve hello:app`."""

from justapi import JustAPI

app = JustAPI()


@app.get("/items/{item_id}")
def read_item(item_id: int, q: str | None = None) -> dict[str, int | str | None]:
    return {"item": item_id, "q": q}
