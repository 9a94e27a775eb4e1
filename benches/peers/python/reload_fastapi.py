"""The application that the matrix `reload` saves again and again, for FastAPI."""

from fastapi import FastAPI

VERSION = 0

app = FastAPI()


@app.get("/")
def version() -> int:
    return VERSION
