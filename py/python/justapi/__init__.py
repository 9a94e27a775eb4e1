"""justapi: a fast HTTP server and framework for Python APIs, written in Rust."""

from __future__ import annotations

from justapi import status as status
from justapi.app import JustAPI, JustAPIApp
from justapi.background import BackgroundTasks
from justapi.datastructures import UploadFile
from justapi.exceptions import HTTPException, WebSocketException
from justapi.param_functions import (
    Body,
    Cookie,
    Depends,
    File,
    Form,
    Header,
    Path,
    Query,
    Security,
)
from justapi.requests import Request
from justapi.responses import Response
from justapi.routing import APIRouter
from justapi.websockets import WebSocket, WebSocketDisconnect

__all__ = [
    "APIRouter",
    "BackgroundTasks",
    "Body",
    "Cookie",
    "Depends",
    "File",
    "Form",
    "HTTPException",
    "Header",
    "JustAPI",
    "JustAPIApp",
    "Path",
    "Query",
    "Request",
    "Response",
    "Security",
    "UploadFile",
    "WebSocket",
    "WebSocketDisconnect",
    "WebSocketException",
    "status",
]
