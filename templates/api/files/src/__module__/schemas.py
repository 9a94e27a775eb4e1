"""What clients send and get."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, EmailStr, Field

Email = Annotated[EmailStr, AfterValidator(str.lower)]
# The upper end bounds the work of hashing.
Password = Annotated[str, Field(min_length=12, max_length=200)]


class Credentials(BaseModel):
    email: Email
    password: Password


class AccountRead(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int
    email: str
    created_at: datetime


class TokenRead(BaseModel):
    token: str
    expires_at: datetime


class NoteWrite(BaseModel):
    title: str = Field(min_length=1, max_length=100)
    text: str = Field("", max_length=10_000)


class NoteRead(NoteWrite):
    model_config = ConfigDict(from_attributes=True)

    id: int
    created_at: datetime
