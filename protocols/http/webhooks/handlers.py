"""The paths of webhooks below /v1/vhosts/V: make, look at, pause, replay, redrive, rotate secrets.

GET     webhooks                        all
PUT     webhooks/NAME                   make or change one (settings.py), with "secret": "whsec_..."
                                        or "signing": "hmac" | "ed25519" | "none" (hmac)
GET     webhooks/NAME                   its settings and state; never its secrets
DELETE  webhooks/NAME
POST    webhooks/NAME/pause, resume     resume also switches on what was switched off
POST    webhooks/NAME/verify            ask the receiver now whether it agrees; what it said
POST    webhooks/NAME/test              send one message that is in no queue; what came of it
POST    webhooks/NAME/rotate-secret     {"overlap_ms": 86400000, "signing": ...}: the new secret, once
POST    webhooks/NAME/replay            {"from": TIME | "pos:N", "to": ...}: send again what was sent
POST    webhooks/NAME/redrive           {"max": 1000}: send its dead letters again
GET     webhooks/NAME/attempts          the delivery log, as a stream is read
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import Whole, number_of, object_of, optional_object
from penstock.protocols.http.shared.pages import page
from penstock.protocols.http.shared.positions import indexed, offset_at, position_of
from penstock.protocols.http.webhooks.belongings import attempts_queue, dead_queue
from penstock.protocols.http.webhooks.client import NoAnswer
from penstock.protocols.http.webhooks.security.signing import (
    BadSecret,
    check_secret,
    kind_of,
    new_secret,
    public_key,
)
from penstock.protocols.http.webhooks.service import Webhooks
from penstock.protocols.http.webhooks.settings import settings_of
from penstock.router.errors import AccessRefused
from penstock.router.queues.start_position import parse_since
from penstock.subscriptions.errors import SubscriptionError
from penstock.subscriptions.streams.replay import Replay
from penstock.subscriptions.streams.stream import Stream
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.data.pulling.reader import StreamReader
    from penstock.protocols.http.server.app import HttpApp
    from penstock.protocols.http.webhooks.delivery.worker import Worker
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["WebhookHandlers", "shown"]

OVERLAP_MS: Final = Whole(86_400_000, 0, 30 * 86_400_000)
REDRIVE: Final = Whole(1000, 1, 1_000_000)
SIGNING: Final = ("hmac", "ed25519", "none")


def shown(worker: Worker) -> dict[str, Any]:
    """A webhook as JSON, without its secrets."""
    webhook = worker.webhook
    newest = webhook.secrets[0] if webhook.secrets else ""
    return {
        "name": webhook.name,
        "vhost": webhook.vhost,
        "user": webhook.user,
        **webhook.settings.shown(),
        "signing": kind_of(newest) if newest else "none",
        "public_key": public_key(newest) if newest else None,
        "secrets": len(webhook.secrets),
        **worker.shown(),
    }


class WebhookHandlers:
    """The handlers."""

    def __init__(self, access: Access, webhooks: Webhooks, reader: StreamReader) -> None:
        self._access = access
        self._webhooks = webhooks
        self._reader = reader

    def add(self, app: HttpApp) -> None:
        """Serve the paths on `app`."""
        base = "/v1/vhosts/{vhost}/webhooks"
        one = f"{base}/{{name}}"
        app.routes.add("GET", base, self.index)
        app.routes.add("PUT", one, self.put)
        app.routes.add("GET", one, self.show)
        app.routes.add("DELETE", one, self.delete)
        app.routes.add("GET", f"{one}/attempts", self.attempts)
        for action, handler in (
            ("pause", self.pause),
            ("resume", self.resume),
            ("verify", self.verify),
            ("test", self.test),
            ("rotate-secret", self.rotate),
            ("replay", self.replay),
            ("redrive", self.redrive),
        ):
            app.routes.add("POST", f"{one}/{action}", handler)

    def _worker(self, request: Request) -> tuple[Vhost, Worker]:
        vhost = self._access.vhost(request)
        name = request.names["name"]
        self._webhooks.permit(self._access.identity(request), vhost, name)
        return vhost, self._webhooks.get(vhost, name)

    async def index(self, request: Request) -> Response:
        """All that the user may see."""
        vhost = self._access.vhost(request)
        identity = self._access.identity(request)
        found = []
        for worker in self._webhooks.of(vhost):
            try:
                self._webhooks.permit(identity, vhost, worker.webhook.name)
            except AccessRefused:
                continue
            found.append((worker.webhook.name, worker))
        return page(request, "webhooks", found, lambda _, worker: shown(worker))

    async def put(self, request: Request) -> Response:
        """Make or change one."""
        vhost = self._access.vhost(request)
        body = object_of(await request.json())
        secret, signing = body.pop("secret", None), body.pop("signing", None)
        settings = settings_of(body)
        name = request.names["name"]
        known = any(worker.webhook.name == name for worker in self._webhooks.of(vhost))
        made: list[str] = []
        if secret is not None:
            made = [_checked(secret)]
        elif _signing(signing, "hmac") != "none" and (signing is not None or not known):
            made = [new_secret(_signing(signing, "hmac"))]  # type: ignore[arg-type]
        worker, is_new, lsn = self._webhooks.put(self._access.identity(request), vhost, name, settings, made)
        if signing == "none":
            worker.webhook.secrets = []
            lsn = self._webhooks.save(worker)
        await self._access.kept(lsn, "fsync")
        answer = shown(worker)
        if made and secret is None:
            answer["secret"] = made[0]
        return json_response(answer, 201 if is_new else 200)

    async def show(self, request: Request) -> Response:
        """Its settings and state."""
        return json_response(shown(self._worker(request)[1]))

    async def delete(self, request: Request) -> Response:
        """End it."""
        vhost, worker = self._worker(request)
        await self._access.kept(self._webhooks.delete(vhost, worker.webhook.name), "fsync")
        return Response(204)

    async def pause(self, request: Request) -> Response:
        """Send nothing until it is resumed."""
        _, worker = self._worker(request)
        worker.webhook.paused = True
        lsn = self._webhooks.save(worker)
        worker.stop()
        await self._access.kept(lsn, "fsync")
        return json_response(shown(worker))

    async def resume(self, request: Request) -> Response:
        """Go on, whether it was paused or switched off."""
        _, worker = self._worker(request)
        worker.webhook.paused, worker.webhook.disabled = False, ""
        lsn = self._webhooks.save(worker)
        worker.start()
        await self._access.kept(lsn, "fsync")
        return json_response(shown(worker))

    async def verify(self, request: Request) -> Response:
        """Ask the receiver now whether it agrees."""
        _, worker = self._worker(request)
        if worker.webhook.settings.verify == "none":
            raise HttpError(
                409, "wrong_mode", "verify is none: the receiver is not asked; PUT it as options or challenge"
            )
        try:
            grant = await worker.verify()
        except NoAnswer as error:
            allowed, reason = False, f"no answer: {error.kind}: {error.detail}"
        else:
            allowed, reason = grant.allowed, grant.reason
        await self._access.kept(self._access.broker.log.appender.next_lsn - 1, "fsync")
        told = {"allowed": allowed, "reason": reason, "granted_at": worker.webhook.granted_ms}
        return json_response({**told, "state": worker.state})

    async def test(self, request: Request) -> Response:
        """Send one message that is in no queue."""
        _, worker = self._worker(request)
        if worker.state == "pending":
            raise HttpError(409, "wrong_mode", "the receiver has not agreed yet: see last_error")
        return json_response(await worker.test())

    async def rotate(self, request: Request) -> Response:
        """A new secret; the one before signs, too, for a while."""
        _, worker = self._worker(request)
        body = await optional_object(request)
        overlap_ms = number_of(body, "overlap_ms", OVERLAP_MS)
        webhook = worker.webhook
        default = kind_of(webhook.secrets[0]) if webhook.secrets else "hmac"
        kind = _signing(body.get("signing"), default)
        if "secret" in body:
            secret = _checked(body["secret"])
        elif kind == "none":
            raise HttpError(400, "bad_field", "signing: hmac or ed25519")
        else:
            secret = new_secret(kind)  # type: ignore[arg-type]
        webhook.secrets = [secret, *webhook.secrets[:1]] if overlap_ms else [secret]
        webhook.retire_ms = self._access.broker.log.wall_ms() + overlap_ms if overlap_ms else 0
        await self._access.kept(self._webhooks.save(worker), "fsync")
        return json_response(
            {"secret": secret, "public_key": public_key(secret), "retire_at": webhook.retire_ms}
        )

    async def replay(self, request: Request) -> Response:
        """Send again what its source had in a range of time, or of positions."""
        _, worker = self._worker(request)
        self._running(worker)
        body = await optional_object(request)
        first = await self._position(request, body.get("from"), "from")
        log = self._access.broker.log
        last = await self._position(request, body["to"], "to") if "to" in body else log.appender.next_lsn - 1
        source = worker.source
        if source is None:
            raise HttpError(409, "wrong_mode", "its source is gone")
        queue: Queue
        if isinstance(source, Subscription):
            source = source.stream
        if isinstance(source, Stream):
            queue = source.reader(await offset_at(source, first))
        else:
            await indexed(log, Replay.wants(source, first))
            queue = self._access.broker.queues.replay(source, first)
        if source.deleted:
            raise HttpError(409, "wrong_mode", "its source is gone")
        worker.feed_from(queue, last_lsn=max(last, 1))
        return json_response({"from": f"0:{first}", "to": f"0:{last}"}, 202)

    async def redrive(self, request: Request) -> Response:
        """Send its dead letters again."""
        vhost, worker = self._worker(request)
        self._running(worker)
        most = number_of(await optional_object(request), "max", REDRIVE)
        entry = vhost.queues.get(dead_queue(worker.webhook.name))
        ready = entry.queue.ready_count if entry is not None else 0
        count = min(most, ready)
        if entry is not None and count:
            try:
                worker.feed_from(entry.queue, most=count)
            except SubscriptionError as error:
                raise HttpError(409, "subscription_busy", error.message) from error
        return json_response({"messages": count}, 202)

    async def attempts(self, request: Request) -> Response:
        """The delivery log."""
        vhost, worker = self._worker(request)
        entry = vhost.queues.get(attempts_queue(worker.webhook.name))
        if entry is None or not isinstance(entry.queue, Stream):
            raise HttpError(404, "not_found", "somebody deleted the delivery log")
        return await self._reader.read_stream(request, entry.queue)

    def _running(self, worker: Worker) -> None:
        if worker.broken:
            raise HttpError(409, "wrong_mode", f"the webhook is broken: {worker.broken}")
        if worker.state in ("paused", "disabled", "pending"):
            raise HttpError(409, "wrong_mode", f"the webhook is {worker.state}")

    async def _position(self, request: Request, value: Any, name: str) -> int:
        log = self._access.broker.log
        since = parse_since(value, log.now_ms())
        if since is None:
            raise HttpError(
                400, "bad_field", f'{name}: a time with its zone, an interval ("-1h"), or "pos:N"'
            )
        return await position_of(log, self._access.vhost(request).lp, since)


def _checked(secret: Any) -> str:
    try:
        if not isinstance(secret, str):
            raise BadSecret("a secret is text")
        check_secret(secret)
    except BadSecret as error:
        raise HttpError(400, "bad_field", f"secret: {error}") from error
    return secret


def _signing(value: Any, default: str) -> str:
    if value is None:
        return default
    if value not in SIGNING:
        raise HttpError(400, "bad_field", f"signing: one of {', '.join(SIGNING)}")
    return str(value)
