"""A span for each request to the management API, in the trace that the client names by `traceparent`."""

from __future__ import annotations

import functools
from typing import Final

from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.errors import PenstockError
from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.protocols.http.server.routes import Handler

__all__ = ["traced"]

_CONTEXT: Final = TraceContextTextMapPropagator()
_FAULT: Final = 500


def traced(tracer: Tracer, method: str, path: str, handler: Handler) -> Handler:
    """The handler of a route, with a span for each request. Names of the path are no part of its name.

    Requests that another worker sends on are in that worker's span already.
    """

    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        if request.part:
            return await handler(request)
        span = tracer.start_span(
            f"{method} {path}",
            context=_CONTEXT.extract(request.headers),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": request.method,
                "http.route": path,
                "url.path": request.target.partition("?")[0],
                "client.address": request.peer_host,
                "user.name": "" if request.identity is None else request.identity.username,
            },
        )
        try:
            response = await handler(request)
        except HttpError as error:
            _answered(span, error.status, error.code)
            raise
        except PenstockError as error:
            # The listener finds the status for it (`HttpApp.translate`).
            span.set_attribute("error.type", type(error).__name__)
            raise
        except Exception as error:
            _answered(span, _FAULT, type(error).__name__)
            raise
        else:
            _answered(span, response.status)
            return response
        finally:
            span.end()

    return handle


def _answered(span: Span, status: int, error: str = "") -> None:
    span.set_attribute("http.response.status_code", status)
    if error:
        span.set_attribute("error.type", error)
    if status >= _FAULT:
        span.set_status(StatusCode.ERROR)
