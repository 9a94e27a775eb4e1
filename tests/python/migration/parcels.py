"""A parcel service, as its authors wrote it for FastAPI."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from enum import Enum
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import (
    APIRouter,
    BackgroundTasks,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    UploadFile,
    WebSocket,
    WebSocketDisconnect,
    status,
)
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteHTTPException

PAGES = FilePath(__file__).parent / "pages"


class Size(str, Enum):
    small = "small"
    large = "large"


class NewParcel(BaseModel):
    receiver: str = Field(min_length=1, max_length=80)
    weight_kg: float = Field(gt=0, le=31.5)
    size: Size = Size.small
    deliver_on: date | None = None


class Parcel(NewParcel):
    id: int
    state: Literal["waiting", "sent"] = "waiting"
    packed_by: str = Field(exclude=True)


class Depot:
    """Stands for a database and a mail server."""

    def __init__(self) -> None:
        self.parcels: dict[int, Parcel] = {}
        self.history: list[str] = []
        self.letters: list[str] = []
        self.num_sessions = 0


class NoParcel(Exception):
    def __init__(self, parcel_id: int) -> None:
        self.parcel_id = parcel_id


async def session(request: Request) -> AsyncIterator[Depot]:
    depot: Depot = request.app.state.depot
    depot.num_sessions += 1
    try:
        yield depot
        depot.history.append("commit")
    except Exception as error:
        depot.history.append(f"rollback after {type(error).__name__}")
        raise
    finally:
        depot.num_sessions -= 1


def clerk(x_clerk: Annotated[str | None, Header(max_length=20)] = None) -> str:
    if x_clerk is None:
        raise HTTPException(
            status.HTTP_401_UNAUTHORIZED, "Who are you?", headers={"WWW-Authenticate": "Clerk"}
        )
    return x_clerk


def find(
    parcel_id: Annotated[int, Path(ge=1)], depot: Annotated[Depot, Depends(session)]
) -> Parcel:
    try:
        return depot.parcels[parcel_id]
    except KeyError:
        raise NoParcel(parcel_id) from None


DepotSession = Annotated[Depot, Depends(session)]
Found = Annotated[Parcel, Depends(find)]
parcels = APIRouter(prefix="/parcels", tags=["parcels"])
office = APIRouter(prefix="/parcels", tags=["office"], dependencies=[Depends(clerk)])


@parcels.get("/", response_model=list[Parcel])
async def list_parcels(
    depot: DepotSession,
    size: Annotated[list[Size] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
):
    return [one for one in depot.parcels.values() if size is None or one.size in size][:limit]


@parcels.get("/export.csv")
async def export(depot: DepotSession) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        for parcel in depot.parcels.values():
            line = io.StringIO()
            csv.writer(line).writerow([parcel.id, parcel.receiver, parcel.weight_kg])
            yield line.getvalue()
            await asyncio.sleep(0)

    return StreamingResponse(lines(), media_type="text/csv")


@parcels.get("/{parcel_id}")
async def read_parcel(parcel: Found) -> Parcel:
    return parcel


@office.post("/", status_code=201)
def add_parcel(
    new: NewParcel,
    depot: DepotSession,
    packed_by: Annotated[str, Depends(clerk)],
    tasks: BackgroundTasks,
) -> Parcel:
    parcel = Parcel(**new.model_dump(), id=len(depot.parcels) + 1, packed_by=packed_by)
    depot.parcels[parcel.id] = parcel
    tasks.add_task(depot.letters.append, f"{new.receiver}: parcel {parcel.id} is packed")
    return parcel


@office.put("/{parcel_id}/label")
async def label(
    parcel: Found, text: Annotated[str, Form()], picture: Annotated[UploadFile, File()]
) -> dict[str, str | int | None]:
    content = await picture.read()
    await run_in_threadpool(len, content)
    return {"text": text, "file": picture.filename, "bytes": len(content), "id": parcel.id}


@office.delete("/{parcel_id}", status_code=204)
async def send_parcel(parcel: Found, depot: DepotSession) -> None:
    if parcel.state == "sent":
        raise HTTPException(409, {"state": parcel.state})
    parcel.state = "sent"


@parcels.websocket("/{parcel_id}/track")
async def track(socket: WebSocket, parcel_id: int) -> None:
    depot: Depot = socket.app.state.depot
    await socket.accept()
    try:
        async for question in socket.iter_json():
            parcel = depot.parcels.get(parcel_id)
            await socket.send_json({"asked": question, "state": parcel and parcel.state})
    except WebSocketDisconnect:
        depot.history.append("hung up")


async def no_parcel(request: Request, error: NoParcel) -> JSONResponse:
    return JSONResponse({"message": f"no parcel {error.parcel_id}", "at": request.url.path}, 404)


async def refused(request: Request, error: StarletteHTTPException) -> Response:
    request.app.state.depot.history.append(f"refused with {error.status_code}")
    return await http_exception_handler(request, error)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
    app.state.depot.history.append("open")
    yield {"motto": "It will arrive."}
    app.state.depot.history.append("closed")


def create_app(*, is_branded: bool = True) -> FastAPI:
    app = FastAPI(title="Parcels", version="2.0.0", lifespan=lifespan)
    app.state.depot = Depot()
    app.include_router(parcels)
    app.include_router(office)
    app.add_exception_handler(NoParcel, no_parcel)
    app.add_exception_handler(StarletteHTTPException, refused)
    app.mount("/pages", StaticFiles(directory=PAGES), name="pages")

    @app.get("/", include_in_schema=False)
    def index(request: Request) -> dict[str, str]:
        about = str(request.url_for("pages", path="about.txt"))
        return {"motto": request.state.motto, "about": about}

    if is_branded:

        @app.middleware("http")
        async def brand(request: Request, call_next):
            response = await call_next(request)
            response.headers["x-depot"] = "north"
            return response

    return app


app = create_app()
