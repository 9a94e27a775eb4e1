"""Forms and files."""

from typing import Annotated, Literal

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


class Profile(BaseModel):
    name: str


class Preferences(BaseModel):
    limit: int = Field(10, ge=1, description="Result limit")
    tags: list[str] = Field(default_factory=list)


class Person(BaseModel):
    kind: Literal["person"]
    name: str


class Company(BaseModel):
    kind: Literal["company"]
    company_name: str


@app.post("/composed")
async def composed(
    profile: Annotated[Profile, Form()],
    preferences: Annotated[Preferences, Form()],
    token: Annotated[str, Form()],
): ...


@app.post("/maybe")
async def maybe(profile: Annotated[Profile | None, Form()] = None): ...


@app.post("/union")
async def union(
    contact: Annotated[Person | Company, Form(discriminator="kind")],
    login: Annotated[Login | Preferences | None, Form()] = None,
    token: Annotated[str, Form()] = "",
): ...
