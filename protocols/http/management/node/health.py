"""/api/health/checks and RabbitMQ 3's health checks: 200 and "ok", or 503 with the reason."""

from __future__ import annotations

from penstock.protocols.http.management.context import LISTENER_PROTOCOLS, Management, absent
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.server.routes import Handler
from penstock.protocols.http.shared.taking import take

__all__ = ["add"]


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Health(api)
    for path, handler in (
        ("/api/aliveness-test/{vhost}", handlers.alive),
        ("/api/healthchecks/node", handlers.alarms),  # of RabbitMQ 3; clients still ask it
        ("/api/healthchecks/node/{node}", handlers.alarms_of),
        ("/api/health/checks/alarms", handlers.alarms),
        ("/api/health/checks/local-alarms", handlers.alarms),
        ("/api/health/checks/port-listener/{port}", handlers.port_listener),
        ("/api/health/checks/protocol-listener/{protocol}", handlers.protocol_listener),
        ("/api/health/checks/virtual-hosts", handlers.healthy),
        ("/api/health/checks/node-is-quorum-critical", handlers.single_node),
        ("/api/health/checks/node-is-mirror-sync-critical", handlers.single_node),
        ("/api/health/checks/is-in-service", handlers.in_service),
        ("/api/health/checks/ready-to-serve-clients", handlers.ready),
        ("/api/health/checks/below-node-connection-limit", handlers.healthy),
        ("/api/health/checks/metadata-store/initialized", handlers.healthy),
        ("/api/health/checks/metadata-store/initialized/with-data", handlers.healthy),
    ):
        api.app.routes.add("GET", path, handlers.unless_failed(handler))


class _Health:
    def __init__(self, api: Management) -> None:
        self._api = api

    def unless_failed(self, check: Handler) -> Handler:
        """`check`, which is red whatever it is about once the log has failed."""

        async def checked(request: Request) -> Response:
            failed = self._api.broker.log.failed
            if failed is not None:
                return json_response({"status": "failed", "reason": str(failed)}, 503)
            return await check(request)

        return checked

    async def alive(self, request: Request) -> Response:
        """A message through a queue of the vhost, as RabbitMQ's does it, without leaving the queue behind."""
        api = self._api
        vhost = api.vhost(request, change=True)
        actor = api.actor(request)
        name = vhost.declare_queue("", actor, auto_delete=False).name
        try:
            api.messages.publish(vhost, actor.identity, "", name, {}, b"test_message")
            delivery = await take(vhost.queue(name, actor))
            if delivery is None or delivery.record.body != b"test_message":
                raise HttpError(503, "failed", "the test message did not come back")
            delivery.settle()
        finally:
            vhost.delete_queue(name, actor)
        return json_response({"status": "ok"})

    async def alarms(self, request: Request) -> Response:
        log = self._api.broker.log
        resources = log.alarms + (["log_damage"] if log.damages else [])
        if not resources:
            return json_response({"status": "ok"})
        alarms = [{"node": self._api.node, "resource": resource} for resource in resources]
        return json_response(
            {"status": "failed", "reason": "There are alarms in effect", "alarms": alarms}, 503
        )

    async def port_listener(self, request: Request) -> Response:
        text = request.names["port"]
        if not text.isdigit():
            raise HttpError(400, "bad_request", "the port is a number")
        ports = [listener.port for _, listener in self._api.registry.accepting()]
        if int(text) in ports:
            return json_response({"status": "ok", "port": int(text)})
        return json_response(
            {"status": "failed", "reason": "No active listener", "missing": int(text), "ports": ports}, 503
        )

    async def protocol_listener(self, request: Request) -> Response:
        wanted = request.names["protocol"]
        protocols = [LISTENER_PROTOCOLS[name] for name, _ in self._api.registry.accepting()]
        if wanted in protocols:
            return json_response({"status": "ok", "protocol": wanted})
        return json_response(
            {
                "status": "failed",
                "reason": "No active listener",
                "missing": wanted,
                "protocols": protocols,
            },
            503,
        )

    async def healthy(self, request: Request) -> Response:
        """True whenever this process answers."""
        return json_response({"status": "ok"})

    async def in_service(self, request: Request) -> Response:
        if self._api.is_running:
            return json_response({"status": "ok"})
        return json_response({"status": "failed", "reason": "the listeners are stopped (start_app)"}, 503)

    async def alarms_of(self, request: Request) -> Response:
        if request.names["node"] != self._api.node:
            raise absent()
        return await self.alarms(request)

    async def ready(self, request: Request) -> Response:
        serves = any(listener.accepting for listener in self._api.registry.of("amqp"))
        if serves:
            return json_response({"status": "ok"})
        return json_response({"status": "failed", "reason": "not serving AMQP clients"}, 503)

    async def single_node(self, request: Request) -> Response:
        return json_response({"status": "ok", "reason": "single node cluster"})
