"""The application that the matrix `reload` saves again and again, for our package."""

from justapi import JustAPI

VERSION = 0

app = JustAPI()


@app.get("/")
def version() -> int:
    return VERSION
