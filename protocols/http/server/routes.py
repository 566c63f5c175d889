"""Which handler serves a path: a tree of segments, found in as many steps as the path has.

    api.add("GET", "/api/queues/{vhost}/{name}", show_queue)

A handler that is `quick` is begun while its request is read, outside of any task, and gets one when it has to
wait; until then it must not use what needs a task (`asyncio.timeout`, `asyncio.current_task`). Most requests
for such a handler cost no task at all.

A literal segment goes before a name. HEAD is served by GET's handler. Programs ask for the same few targets
again and again: what was found for a short one is remembered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from penstock.protocols.http.server.messages import HttpError, Request, Response, split_target

__all__ = ["Around", "Handler", "Routes"]

Handler = Callable[[Request], Awaitable[Response]]
Around = Callable[[str, str, Handler], Handler]
"""(method, path, handler) -> the handler that is called instead."""
_Found = tuple[Sequence[str], Mapping[str, Sequence[str]], Mapping[str, str], Handler, bool]
"""Segments, query and names of a target, who serves it, and whether that is quick."""

_NAME: Final = "{}"
_REMEMBERED_MAX: Final = 1024
_TARGET_MAX: Final = 256


class _Node:
    __slots__ = ("children", "methods", "names", "quick")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.methods: dict[str, Handler] = {}
        self.quick: set[str] = set()
        self.names: dict[str, tuple[tuple[int, str], ...]] = {}


class Routes:
    """The paths of one listener."""

    def __init__(self) -> None:
        self._root = _Node()
        self._found: dict[tuple[str, str], _Found] = {}
        self.around: Around | None = None
        """The wrapper that is put around the handlers that are added from now on, by method and path."""

    def read_known(self, request: Request) -> bool:
        """Read the target of a request like one before: `handler`, `names` and what `read` sets are set.

        Whether that handler is quick; False, too, when there was no such request.
        """
        known = self._found.get((request.method, request.target))
        if known is None:
            return False
        request.segments, request.query, request.names, request.handler, quick = known
        return quick

    def read(self, request: Request) -> None:
        """Read a request's target: its `segments` and `query` are set. Raises HttpError 400."""
        request.segments, request.query = split_target(request.target)

    def begin_with(self, segment: str) -> bool:
        """Whether there are paths whose first segment is this one."""
        return segment in self._root.children

    def add(self, method: str, path: str, handler: Handler, *, quick: bool = False) -> None:
        """Serve `method` on `path`, whose parts in braces become `Request.names`. `quick`: see the module."""
        node = self._root
        names = []
        for at, segment in enumerate(filter(None, path.split("/"))):
            if segment.startswith("{"):
                names.append((at, segment[1:-1]))
                segment = _NAME
            node = node.children.setdefault(segment, _Node())
        assert method not in node.methods, f"{method} {path} twice"
        node.methods[method] = handler if self.around is None else self.around(method, path, handler)
        if quick:
            node.quick.add(method)
        node.names[method] = tuple(names)

    def find(self, request: Request) -> Handler:
        """The handler of a request that was read, whose `names` are set.

        Raises:
            HttpError: 404, or 405 with the methods that there are.

        """
        handler, quick = self._search(request)
        if len(request.target) <= _TARGET_MAX:
            if len(self._found) >= _REMEMBERED_MAX:
                self._found.clear()
            self._found[request.method, request.target] = (
                request.segments,
                request.query,
                request.names,
                handler,
                quick,
            )
        return handler

    def _search(self, request: Request) -> tuple[Handler, bool]:
        segments = request.segments
        node = self._walk(self._root, segments, 0)
        if node is None:
            raise HttpError(
                404, "not_found", "there is nothing at this path; GET /openapi.json has those there are"
            )
        method = request.method if request.method in node.methods or request.method != "HEAD" else "GET"
        handler = node.methods.get(method)
        if handler is None:
            allowed = ", ".join(sorted(node.methods))
            raise HttpError(
                405, "method_not_allowed", f"this path takes {allowed}", headers=(("allow", allowed),)
            )
        request.names = {name: segments[at] for at, name in node.names[method]}
        return handler, method in node.quick

    def paths(self) -> list[tuple[str, str]]:
        """(method, path) of every route, for documents and tests; names come as {}."""
        found: list[tuple[str, str]] = []

        def walk(node: _Node, path: str) -> None:
            found.extend((method, path or "/") for method in node.methods)
            for segment, child in node.children.items():
                walk(child, f"{path}/{segment}")

        walk(self._root, "")
        return sorted(found, key=lambda route: (route[1], route[0]))

    def named_paths(self) -> list[tuple[str, str]]:
        """The same with the names in braces, as they were added."""
        found: list[tuple[str, str]] = []

        def walk(node: _Node, segments: tuple[str, ...]) -> None:
            for method in node.methods:
                named = list(segments)
                for at, name in node.names[method]:
                    named[at] = f"{{{name}}}"
                found.append((method, "/" + "/".join(named)))
            for segment, child in node.children.items():
                walk(child, (*segments, segment))

        walk(self._root, ())
        return sorted(found, key=lambda route: (route[1], route[0]))

    def _walk(self, node: _Node, segments: Sequence[str], at: int) -> _Node | None:
        if at == len(segments):
            return node if node.methods else None
        for key in (segments[at], _NAME):
            # A name in a path may be "{}" itself: it is a name all the same.
            child = node.children.get(key)
            if child is not None and (found := self._walk(child, segments, at + 1)) is not None:
                return found
        return None
