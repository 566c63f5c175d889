"""RabbitMQ's own management page before our API: `make rabbitmq-page`.

The page is that of Debian's package rabbitmq-server (3.10), or one of another version, unpacked:

    make rabbitmq-page ARGS="--files FOLDER"    FOLDER: .../plugins/rabbitmq_management-*/priv/www

Its files are served in the place of the console's, in Chromium; everything else is answered by a gateway with
AMQP and MQTT traffic. Each page is opened as an administrator, and each form is sent. A script error, a page
that is not drawn, or an answer of the API of 400 or more is reported, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Page, Response, Route, TimeoutError

from tests.support.brokers import RABBITMQ_SCRIPT, Gateway
from tests.support.browser import chromium
from tests.support.management import SETTINGS, Api

FILES: Final = "lib/rabbitmq_server-*/plugins/rabbitmq_management-*/priv/www"
TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
BOOTSTRAP: Final = "js/oidc-oauth/bootstrap.js"
"""A module that RabbitMQ 4 makes by its settings, see `bootstrap`."""
WAIT_MS: Final = 60_000
QUEUES: Final = {"busy": "classic", "many": "quorum", "old": "stream"}
OPEN: Final = """place => {
  document.querySelector("#main").innerHTML = "";
  if (location.hash === place) app.refresh();
  else location.hash = place;
}"""

FORMS: Final[tuple[tuple[str, str, str, dict[str, str]], ...]] = (
    # The page, the form's action and method, and what is filled in.
    ("#/queues", "#/queues", "put", {"name": "made", "vhost": "/"}),
    ("#/exchanges", "#/exchanges", "put", {"name": "given", "vhost": "/", "type": "topic"}),
    ("#/queues/%2F/made", "#/bindings", "post", {"source": "given", "routing_key": "a.#"}),
    (
        "#/exchanges/%2F/given",
        "#/exchanges/publish",
        "post",
        {"routing_key": "a.b", "payload": "text", "delivery_mode": "2"},
    ),
    (
        "#/queues/%2F/made",
        "#/queues/get",
        "post",
        {"count": "1", "ackmode": "ack_requeue_true", "encoding": "auto"},
    ),
    ("#/queues/%2F/made", "#/queues", "delete", {"mode": "purge"}),
    ("#/queues/%2F/made", "#/bindings", "delete", {}),
    ("#/vhosts", "#/vhosts", "put", {"name": "another", "description": "made by the page"}),
    ("#/users", "#/users-add", "put", {"username": "ann", "password": "p", "password_confirm": "p"}),
    (
        "#/users/ann",
        "#/permissions",
        "put",
        {"vhost": "another", "configure": ".*", "write": ".*", "read": ".*"},
    ),
    (
        "#/users/ann",
        "#/topic-permissions",
        "put",
        {"vhost": "another", "exchange": "amq.topic", "write": "^a", "read": ".*"},
    ),
    ("#/users/ann", "#/topic-permissions", "delete", {}),
    ("#/users/ann", "#/permissions", "delete", {}),
    (
        "#/users/ann",
        "#/users-modify",
        "put",
        {"password": "q", "password_confirm": "q", "tags": "monitoring"},
    ),
    ("#/users/ann", "#/users", "delete", {}),
    (
        "#/policies",
        "#/policies",
        "put",
        {
            "name": "capped",
            "vhost": "/",
            "pattern": "^made",
            "priority": "1",
            "definition_1_mfkey": "max-length",
            "definition_1_mfvalue": "10",
            "definition_1_mftype": "number",
        },
    ),
    ("#/policies/%2F/capped", "#/policies", "delete", {}),
    ("#/limits", "#/limits", "put", {"vhost": "another", "name": "max-queues", "value": "9"}),
    ("#/limits", "#/user-limits", "put", {"user": "guest", "name": "max-connections", "value": "99"}),
    ("#/limits", "#/limits", "delete", {}),
    ("#/limits", "#/user-limits", "delete", {}),
    ("#/vhosts/another", "#/vhosts", "delete", {}),
    ("#/exchanges/%2F/given", "#/exchanges", "delete", {}),
    ("#/queues/%2F/made", "#/queues", "delete", {"mode": "delete"}),
    (
        "#/policies",
        "#/operator_policies",
        "put",
        {
            "name": "bounded",
            "vhost": "/",
            "pattern": "^made",
            "priority": "1",
            "definitionop_1_mfkey": "max-length",
            "definitionop_1_mfvalue": "10",
            "definitionop_1_mftype": "number",
        },
    ),
    ("#/policies", "#/operator_policies", "delete", {}),
    ("#/cluster-name", "#/cluster-name", "put", {"name": "renamed"}),
)
SUBMIT: Final = """([action, method, values]) => {
  const forms = [...document.querySelectorAll("form")].filter((form) =>
    form.getAttribute("action") === action && form.getAttribute("method") === method &&
    (values.mode === undefined || form.elements.mode?.value === values.mode));
  if (forms.length === 0) return false;
  for (const [name, value] of Object.entries(values)) {
    const field = forms[0].elements[name];
    if (!field) throw new Error(`the form ${action} has no field ${name}`);
    if (name !== "mode") field.value = value;
  }
  forms[0].querySelector("input[type=submit]").click();
  return true;
}"""


def bootstrap(files: Path) -> str:
    """The module that RabbitMQ 4 makes where nobody logs in by OAuth 2.

    It hands the functions of its neighbour to scripts that are no modules.
    """
    names = re.findall(
        r"^export function (\w+)", (files / BOOTSTRAP).with_name("helper.js").read_text(), re.M
    )
    settings = json.dumps({"oauth_enabled": False})
    return "\n".join(
        (
            f"import {{{', '.join(names)}}} from './helper.js';",
            f"set_oauth_settings({settings});",
            *(f"window.{name} = {name};" for name in names),
        )
    )


def pages(api: Api) -> list[str]:
    """The addresses of all pages; each kind of thing with one of its things."""
    connections, channels = api.get("connections"), api.get("channels")
    return [
        *(
            "#/",
            "#/connections",
            "#/channels",
            "#/exchanges",
            "#/queues",
            "#/users",
            "#/vhosts",
            "#/policies",
        ),
        *("#/limits", "#/feature-flags", "#/cluster-name", "#/users/guest", "#/vhosts/%2F"),
        *(f"#/nodes/{quote(node['name'], '')}" for node in api.get("nodes")),
        *(f"#/connections/{quote(one['name'], '')}" for one in connections),
        *(f"#/channels/{quote(one['name'], '')}" for one in channels),
        *(f"#/exchanges/%2F/{quote(one['name'] or 'amq.default', '')}" for one in api.get("exchanges/%2F")),
        *(f"#/queues/%2F/{quote(one['name'], '')}" for one in api.get("queues/%2F")),
    ]


@contextmanager
def traffic(gateway: Gateway) -> Iterator[None]:
    """Messages by AMQP and MQTT, published, consumed, acknowledged and waiting, until the end."""
    ends = threading.Event()
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)

    def work() -> None:
        with closing(pika.BlockingConnection(parameters)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for name, kind in QUEUES.items():
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
            channel.basic_consume("busy", lambda of, method, *_: of.basic_ack(method.delivery_tag))
            while not ends.wait(0.02):
                for name in QUEUES:
                    channel.basic_publish("", name, b"text", pika.BasicProperties(delivery_mode=2))
                mqtt.publish("a/b", b"1", qos=1)
                connection.process_data_events(0)

    mqtt = paho.Client(CallbackAPIVersion.VERSION2, "desk", protocol=paho.MQTTv5)
    mqtt.on_connect = lambda client, *_: client.subscribe("a/#", qos=1)
    mqtt.connect("127.0.0.1", gateway.mqtt_port)
    mqtt.loop_start()
    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        ends.set()
        worker.join()
        mqtt.disconnect()
        mqtt.loop_stop()


class Watch:
    """A page, and what goes wrong in it."""

    def __init__(self, page: Page, files: Path) -> None:
        self.wrong: list[str] = []
        self.page = page
        self._files = files
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.wrong.append(f"{page.url}: {error}"))
        page.on("response", self._answered)
        page.on("dialog", lambda dialog: dialog.accept())
        page.route(lambda url: not urlsplit(url).path.startswith("/api/"), self._serve)

    def _serve(self, route: Route) -> None:
        name = urlsplit(route.request.url).path.strip("/") or "index.html"
        path = self._files / name
        if name == BOOTSTRAP:
            route.fulfill(body=bootstrap(self._files), content_type="text/javascript")
        elif path.is_file():
            route.fulfill(path=path, content_type=TYPES.get(path.suffix))
        else:
            route.fulfill(status=404)

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and "/api/" in response.url:
            self.wrong.append(f"{self.page.url}: {response.request.method} {response.url} {response.status}")

    def sign_in(self) -> None:
        """As guest."""
        self.page.goto("/")
        self.page.locator("input[name=username]").fill("guest")
        self.page.locator("input[name=password]").fill("guest")
        self.page.locator("input[type=submit]").click()
        self.page.locator("#logout").wait_for()
        self.wrong.clear()  # a page without a login asks who it is

    def open(self, place: str) -> None:
        """A page, drawn from answers of the API."""
        self.page.evaluate(OPEN, place)
        try:
            self.page.locator("#main h1, #main h2").first.wait_for()
        except TimeoutError:
            self.wrong.append(f"{place} is not drawn")

    def send(self, action: str, method: str, values: dict[str, str]) -> None:
        """A form of the page, until it is answered."""
        with self.page.expect_response(lambda answer: answer.request.method != "GET"):
            found = self.page.evaluate(SUBMIT, [action, method, values])
            if not found:
                self.wrong.append(f"{self.page.url}: there is no form {method} {action}")
                self.page.evaluate("fetch('/api/none', {method: 'OPTIONS'})")


def _is_there(api: Api) -> bool:
    """Whether both clients have what they work with."""
    wanted = {"connections": 2, "consumers": 2, "queues": 4}
    return all(len(api.get(of)) >= count for of, count in wanted.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Report what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--files", type=Path, help="the folder of the page (default: RabbitMQ's, as installed)"
    )
    files = parser.parse_args(arguments).files or next(RABBITMQ_SCRIPT.parent.parent.glob(FILES), None)
    if files is None:
        sys.exit("RabbitMQ is not installed: apt-get install rabbitmq-server")
    with tempfile.TemporaryDirectory() as folder, Gateway(Path(folder), settings=SETTINGS) as gateway:
        with closing(Api(gateway)) as api, traffic(gateway), chromium() as browser:
            while not _is_there(api):
                pass
            context = browser.new_context(base_url=f"http://127.0.0.1:{gateway.ports['management']}")
            watch = Watch(context.new_page(), files)
            watch.sign_in()
            opened = pages(api)
            for place in opened:
                watch.open(place)
            for place, action, method, values in FORMS:
                watch.open(place)
                watch.send(action, method, values)
            context.close()
    print(f"{len(opened)} pages, {len(FORMS)} forms")
    print(*watch.wrong, sep="\n")
    return 1 if watch.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
