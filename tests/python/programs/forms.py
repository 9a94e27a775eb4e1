"""Forms and files."""

from typing import Annotated

from fastapi import FastAPI, File, Form, Header, UploadFile
from pydantic import BaseModel, Field

app = FastAPI(title="Forms", version="1")


class Login(BaseModel):
    """Who and what."""

    username: str
    password: str = Field(min_length=8)
    remember: bool = False
    tags: list[str] = []


@app.post("/login")
def login(username: Annotated[str, Form()], password: Annotated[str, Form(max_length=9)] = ""): ...


@app.post("/model")
def model(data: Annotated[Login, Form()]): ...


@app.post("/model-multipart")
def model_multipart(data: Annotated[Login, Form(media_type="multipart/form-data")]): ...


@app.post("/file")
def file(file: Annotated[bytes, File()]): ...


@app.post("/upload")
async def upload(file: UploadFile): ...


@app.post("/optional")
async def optional(
    file: UploadFile | None = None, data: Annotated[bytes | None, File()] = None
): ...


@app.post("/described")
async def described(file: Annotated[UploadFile, File(description="A file", title="The file")]): ...


@app.post("/many")
async def many(files: list[UploadFile], parts: Annotated[list[bytes], File()] = []): ...


@app.post("/mixed")
async def mixed(
    file: Annotated[bytes, File()],
    upload: Annotated[UploadFile, File()],
    token: Annotated[str, Form()],
    numbers: Annotated[list[int], Form()] = [1],
    alias: Annotated[str, Form(alias="other-name")] = "x",
    x_key: Annotated[str | None, Header()] = None,
): ...
