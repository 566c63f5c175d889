"""Users, vhosts, permissions, policies and limits through the API; who may do what; definitions."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest

from tests.support.brokers import BrokerFailed, Gateway
from tests.support.definitions import lost
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "managed", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    made = Api(gateway)
    yield made
    made.close()


def connect(port: int, vhost: str = "/", user: str = "guest", password: str = "guest") -> Any:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, vhost, credentials=credentials)
    )


def test_a_user_a_vhost_and_a_permission_are_made_and_used(api: Api, gateway: Gateway) -> None:
    assert api.status("PUT", "vhosts/v1", {"description": "one", "tags": "a,b"}) == 201
    assert api.status("PUT", "vhosts/v1") == 204
    shown = api.get("vhosts/v1")
    assert (shown["description"], shown["tags"]) == ("one", ["a", "b"])
    assert api.send("PUT", "users/ann", {"password": "x"}).json()["reason"] == "tags_not_present"
    assert api.status("PUT", "users/ann", {"password": "secret", "tags": "management"}) == 201
    assert api.get("users/ann")["tags"] == ["management"]
    assert [user["name"] for user in api.get("users/without-permissions")] == ["ann"]
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        connect(gateway.amqp_port, "v1", "ann", "secret")
    missing = api.send("PUT", "permissions/v1/ann", {"configure": "", "write": "x"})
    assert missing.json()["reason"] == "[{key_missing,read}]"
    rights = {"configure": "^ann-", "write": ".*", "read": ".*"}
    assert api.status("PUT", "permissions/v1/ann", rights) == 201
    assert api.get("permissions/v1/ann") == {"user": "ann", "vhost": "v1", **rights}
    with connect(gateway.amqp_port, "v1", "ann", "secret") as connection:
        channel = connection.channel()
        channel.queue_declare("ann-1", durable=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.queue_declare("bob-1")
    assert api.status("DELETE", "permissions/v1/ann") == 204
    assert api.status("GET", "permissions/v1/ann") == 404
    assert api.status("DELETE", "users/ann") == 204
    assert api.status("DELETE", "vhosts/v1") == 204
    assert api.status("GET", "vhosts/v1") == 404


PLACES = (
    ("GET", "queues/{}", None),
    ("GET", "queues/{}/there", None),
    ("PUT", "queues/{}/new", {"durable": True}),
    ("DELETE", "queues/{}/there", None),
    ("POST", "queues/{}/there/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}),
    ("DELETE", "queues/{}/there/contents", None),
    ("GET", "exchanges/{}/amq.topic", None),
    ("GET", "exchanges/{}/amq.topic/bindings/source", None),
    ("GET", "bindings/{}", None),
    ("GET", "consumers/{}", None),
    ("GET", "policies/{}", None),
    ("GET", "vhost-limits/{}", None),
    ("GET", "vhosts/{}/connections", None),
)


@pytest.mark.parametrize(("method", "path", "body"), PLACES, ids=lambda one: str(one)[:40])
def test_a_vhost_that_a_user_may_not_enter_is_to_it_as_if_it_were_not_there(
    of_manager: Api, method: str, path: str, body: object
) -> None:
    """The answers do not tell whether it is there."""
    hidden, missing = (of_manager.send(method, path.format(vhost), body) for vhost in ("hidden", "nowhere"))
    assert hidden.status_code == missing.status_code == 401
    assert hidden.json() == missing.json()


def test_an_overview_has_the_consumers_for_who_sees_all(api: Api, of_manager: Api) -> None:
    """As RabbitMQ: other users' consumers are not told."""
    assert "consumers" not in of_manager.get("overview")["object_totals"]
    assert api.get("overview")["object_totals"]["consumers"] == 0


@pytest.fixture(scope="module")
def of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with a vhost that a manager may not enter."""
    with Gateway(tmp_path_factory.mktemp("hidden"), settings=SETTINGS) as running:
        with closing(Api(running)) as api:
            assert api.status("PUT", "vhosts/hidden") == 201
            assert api.status("PUT", "queues/hidden/there", {"durable": True}) == 201
            assert api.status("PUT", "users/manager", {"password": "p", "tags": "management"}) == 201
            all_ = {"configure": ".*", "write": ".*", "read": ".*"}
            assert api.status("PUT", "permissions/%2F/manager", all_) == 201
        yield running


@pytest.fixture
def of_manager(of_all: Gateway) -> Iterator[Api]:
    with closing(Api(of_all, "manager", "p")) as api:
        yield api


def test_tags_decide_what_a_user_may_do_with_the_api(api: Api, gateway: Gateway) -> None:
    for tag in ("none", "management", "policymaker", "monitoring"):
        api.send("PUT", f"users/{tag}", {"password": "pw", "tags": "" if tag == "none" else tag})
        api.send("PUT", f"permissions/%2F/{tag}", {"configure": "^mine", "write": ".*", "read": ".*"})
    api.send("PUT", "vhosts/hidden")
    policy = {"pattern": "^mine", "definition": {"max-length": 5}}
    users = {tag: Api(gateway, tag, "pw") for tag in ("none", "management", "policymaker", "monitoring")}
    statuses = {
        tag: {
            "overview": user.status("GET", "overview"),
            "nodes": user.status("GET", "nodes"),
            "users": user.status("GET", "users"),
            "hidden": user.status("GET", "queues/hidden"),
            "declare": user.status("PUT", f"queues/%2F/mine-{tag}", {"durable": True}),
            "declare other": user.status("PUT", "queues/%2F/other", {"durable": True}),
            "policy": user.status("PUT", f"policies/%2F/p-{tag}", policy),
            "vhost": user.status("PUT", "vhosts/new"),
            "definitions": user.status("GET", "definitions"),
        }
        for tag, user in users.items()
    }
    refused = dict.fromkeys(statuses["none"], 401)
    assert statuses["none"] == refused
    assert statuses["management"] == {**refused, "overview": 200, "declare": 201}
    assert statuses["policymaker"] == {**refused, "overview": 200, "declare": 201, "policy": 201}
    assert statuses["monitoring"] == {**refused, "overview": 200, "nodes": 200, "hidden": 200, "declare": 201}
    assert [v["name"] for v in users["management"].get("vhosts")] == ["/"]
    assert [v["name"] for v in users["monitoring"].get("vhosts")] == ["/", "hidden"]
    assert users["none"].send("GET", "overview").json()["reason"] == "Not management user"
    assert api.status("PUT", "vhost-limits/%2F/max-queues", {"value": 5000}) == 204
    assert api.status("PUT", "vhost-limits/hidden/max-queues", {"value": 5}) == 204
    assert users["management"].get("vhost-limits") == [{"vhost": "/", "value": {"max-queues": 5000}}]
    assert users["management"].status("GET", "vhost-limits/hidden") == 401
    assert api.status("PUT", "user-limits/management/max-connections", {"value": 9}) == 204
    assert [one["value"] for one in users["management"].get("user-limits/management")] == [
        {"max-connections": 9}
    ]
    assert users["management"].status("GET", "user-limits/guest") == 401
    assert users["management"].status("GET", "user-limits") == 401
    api.send("DELETE", "vhost-limits/%2F/max-queues")
    for user in users.values():
        user.close()


def test_policies_limits_and_topic_permissions(api: Api) -> None:
    policy = {"pattern": "^p", "definition": {"max-length": 10}, "priority": 3, "apply-to": "queues"}
    assert api.status("PUT", "policies/%2F/p1", policy) == 201
    assert api.get("policies/%2F/p1") == {"vhost": "/", "name": "p1", **policy}
    api.send("PUT", "queues/%2F/pq", {"durable": True})
    shown = api.get("queues/%2F/pq")
    assert (shown["policy"], shown["effective_policy_definition"]) == ("p1", {"max-length": 10})
    assert "not recognised" in api.send("PUT", "policies/%2F/p2", {**policy, "definition": {"zz": 1}}).text
    assert api.status("PUT", "operator-policies/%2F/o1", {**policy, "definition": {"max-length": 5}}) == 201
    assert api.get("queues/%2F/pq")["operator_policy"] == "o1"
    assert api.get("queues/%2F/pq")["effective_policy_definition"] == {"max-length": 5}
    assert api.status("DELETE", "policies/%2F/p1") == 204
    assert api.status("DELETE", "policies/%2F/p1") == 404
    assert api.status("PUT", "vhost-limits/%2F/max-queues", {"value": 50}) == 204
    assert api.get("vhost-limits") == [{"vhost": "/", "value": {"max-queues": 50}}]
    assert api.status("PUT", "vhost-limits/%2F/max-nonsense", {"value": 50}) == 400
    assert api.status("PUT", "user-limits/guest/max-connections", {"value": 9}) == 204
    assert api.get("user-limits/guest") == [{"user": "guest", "value": {"max-connections": 9}}]
    topic = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert api.status("PUT", "topic-permissions/%2F/guest", topic) == 201
    assert api.get("topic-permissions") == [{"user": "guest", "vhost": "/", **topic}]
    assert api.status("DELETE", "topic-permissions/%2F/guest") == 204
    assert api.get("topic-permissions") == []
    assert api.status("PUT", "global-parameters/note", {"value": {"a": [1]}}) == 201
    assert api.get("global-parameters/note") == {"name": "note", "value": {"a": [1]}}


def test_a_vhost_has_its_own_retention_and_its_space_is_told(api: Api, gateway: Gateway) -> None:
    api.send("PUT", "vhosts/spacious")
    with connect(gateway.amqp_port, vhost="spacious") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", bytes(100_000), pika.BasicProperties(delivery_mode=2))
    size = api.get("vhosts/spacious")["log_bytes"]
    assert 100_000 < size < 110_000
    metrics = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=60).text
    assert f'penstock_vhost_log_bytes{{vhost="spacious"}} {size}\n' in metrics
    for limit in ("traffic-retention-bytes", "traffic-retention-seconds"):
        assert api.status("PUT", f"vhost-limits/spacious/{limit}", {"value": 5}) == 204
    limits = {"traffic-retention-bytes": 5, "traffic-retention-seconds": 5}
    assert api.get("vhost-limits/spacious") == [{"vhost": "spacious", "value": limits}]
    assert api.status("DELETE", "vhosts/spacious") == 204


def test_a_deleted_users_connections_are_closed_and_its_login_ends_at_once(
    api: Api, gateway: Gateway
) -> None:
    api.send("PUT", "users/gone", {"password": "pw", "tags": "administrator"})
    api.send("PUT", "permissions/%2F/gone", {"configure": ".*", "write": ".*", "read": ".*"})
    connection = connect(gateway.amqp_port, user="gone", password="pw")
    other = Api(gateway, "gone", "pw")
    assert other.status("GET", "whoami") == 200
    assert api.status("DELETE", "users/gone") == 204
    assert other.status("GET", "whoami") == 401
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(time_limit=10)
    other.close()


# Definitions

EXPORTED: dict[str, Any] = {
    "rabbit_version": "3.13.7",
    "rabbitmq_version": "3.13.7",
    "product_name": "RabbitMQ",
    "users": [
        {
            "name": "migrated",
            "password_hash": base64.b64encode(
                b"salt" + hashlib.sha256(b"salt" + b"old password").digest()
            ).decode(),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
            "limits": {"max-connections": 100},
        },
        {"name": "comma", "password_hash": "", "tags": "monitoring,management", "limits": {}},
    ],
    "vhosts": [{"name": "/"}, {"name": "shop", "description": "the shop", "tags": ["x"]}],
    "permissions": [
        {"user": "migrated", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"},
    ],
    "topic_permissions": [
        {"user": "migrated", "vhost": "shop", "exchange": "orders", "write": ".*", "read": ".*"}
    ],
    "parameters": [
        {"vhost": "shop", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 1000}},
        {
            "vhost": "shop",
            "component": "operator_policy",
            "name": "op",
            "value": {"pattern": "^z", "definition": {"max-length": 7}, "priority": 1, "apply-to": "queues"},
        },
        {"vhost": "shop", "component": "federation-upstream", "name": "s", "value": {"uri": "amqp://"}},
    ],
    "global_parameters": [{"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-x"}],
    "policies": [
        {
            "vhost": "shop",
            "name": "ttl",
            "pattern": "^o",
            "apply-to": "queues",
            "definition": {"message-ttl": 60000},
            "priority": 0,
        }
    ],
    "queues": [
        {"name": "o.new", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {}},
        {
            "name": "o.q",
            "vhost": "shop",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum", "x-dead-letter-exchange": "dlx"},
        },
    ],
    "exchanges": [
        {
            "name": "orders",
            "vhost": "shop",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "dlx"},
        },
        {
            "name": "dlx",
            "vhost": "shop",
            "type": "fanout",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        },
    ],
    "bindings": [
        {
            "source": "orders",
            "vhost": "shop",
            "destination": "o.new",
            "destination_type": "queue",
            "routing_key": "new.#",
            "arguments": {},
        },
        {
            "source": "orders",
            "vhost": "shop",
            "destination": "dlx",
            "destination_type": "exchange",
            "routing_key": "bad",
            "arguments": {"k": "v"},
        },
    ],
}


def test_definitions_are_imported_exported_and_imported_again_with_nothing_lost(
    api: Api, gateway: Gateway, tmp_path: Path
) -> None:
    assert api.status("POST", "definitions", EXPORTED) == 204
    assert api.status("POST", "definitions", EXPORTED) == 204, "the same again is fine"
    exported = api.get("definitions")
    expected = json.loads(json.dumps(EXPORTED))
    expected["users"][1]["tags"] = ["management", "monitoring"]
    assert lost(expected, exported) == []
    components = [(p["component"], p["name"]) for p in exported["parameters"]]
    upstream = ("federation-upstream", "s")
    assert components == [("vhost-limits", "limits"), ("operator_policy", "op"), upstream]
    with Gateway(tmp_path / "second", settings=SETTINGS) as second:
        other = Api(second)
        assert other.status("POST", "definitions", exported) == 204
        assert lost(exported, other.get("definitions")) == []
        other.close()
    gateway.restart()
    again = Api(gateway)
    assert lost(exported, again.get("definitions")) == []
    again.close()


def test_a_migrated_program_goes_on_with_its_old_password(api: Api, gateway: Gateway) -> None:
    api.send("POST", "definitions", EXPORTED)
    with connect(gateway.amqp_port, "shop", "migrated", "old password") as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "topic", durable=True, arguments={"alternate-exchange": "dlx"})
        channel.queue_declare("o.new", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("orders", "new.1", b"first", mandatory=True)
        _, _, body = channel.basic_get("o.new", auto_ack=True)
        assert body == b"first"


def test_definitions_are_loaded_at_start_without_a_default_user(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    users = [{**user, "tags": ["administrator"]} for user in EXPORTED["users"]]
    file.write_text(json.dumps({**EXPORTED, "users": users}))
    settings = {**SETTINGS, "management.load_definitions": str(file)}
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        for _ in range(2):
            with connect(gateway.amqp_port, "shop", "migrated", "old password") as connection:
                connection.channel().queue_declare("o.new", passive=True)
            loaded = Api(gateway, "migrated", "old password")
            assert lost({**EXPORTED, "users": users}, loaded.get("definitions")) == []
            assert "guest" not in [user["name"] for user in loaded.get("users")]
            loaded.close()
            gateway.restart()
        gateway.terminate()
        file.write_text('{"queues": [{"name": "q", "vhost": "nowhere"}]}')
        with pytest.raises(BrokerFailed, match=r"load_definitions.*vhost 'nowhere' does not exist"):
            gateway.start()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"queues": [{"name": "q", "vhost": "nowhere", "durable": True}]}, "vhost 'nowhere' does not exist"),
        ({"exchanges": [{"name": "e", "vhost": "/", "type": "nope"}]}, "unknown exchange type 'nope'"),
        ({"users": [{"name": "u", "password_hash": "%%%", "tags": []}]}, "password_hash"),
        ({"permissions": [{"user": "nobody", "vhost": "/"}]}, "no such user"),
        ({"queues": "no list"}, "queues is a list of objects"),
        ([], "not_json"),
    ],
)
def test_a_mistake_is_found_before_anything_changes(api: Api, change: Any, reason: str) -> None:
    before = api.get("definitions")
    body = change if isinstance(change, list) else {"vhosts": [{"name": "made"}], **change}
    answer = api.send("POST", "definitions", body)
    assert (answer.status_code, reason in answer.json()["reason"]) == (400, True), answer.text
    assert api.get("definitions") == before


def test_all_mistakes_are_named_at_once(api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    assert api.status("PUT", f"exchanges/%2F/{unique}", {"type": "topic", "durable": True}) == 201
    own, new = {"name": unique, "vhost": "/"}, {"name": "made", "vhost": unique}
    body = {
        "vhosts": [{"name": unique}],
        "policies": [{**own, "pattern": "(", "definition": {}}],
        "queues": [
            {**own, "arguments": {"x-max-length": 5}},
            {**new, "arguments": {"x-max-length": -1}},
            {"name": unique, "vhost": "nowhere"},
        ],
        "exchanges": [{**own, "type": "fanout"}, {**new, "type": "x-delayed-message"}],
        "permissions": [{"user": unique, "vhost": "/", "configure": "", "write": "", "read": ""}],
    }
    before = api.get("definitions")
    answer = api.send("POST", "definitions", body)
    assert answer.status_code == 400
    found = answer.json()["reason"].split("; ")
    wanted = {
        f"permissions: '{unique}'": "no such user",
        f"policies: '{unique}'": "pattern",
        f"queues: '{unique}'": "x-max-length",
        "queues: 'made'": "x-max-length",
        f"exchanges: '{unique}'": "type",
        "exchanges: 'made'": "x-delayed-type",
    }
    for thing, about in wanted.items():
        assert any(one.startswith(thing) and about in one for one in found), (thing, found)
    assert any("vhost 'nowhere' does not exist" in one for one in found)
    assert api.get("definitions") == before
    body = {
        "vhosts": [{"name": unique}, {"name": "v", "limits": {"max-queues": 5, "max-nonsense": 1}}],
        "users": [
            {"name": "fine", "limits": [], "tags": []},
            {"name": "u", "tags": [], "limits": {"max-channels": "many"}},
            {"name": "w", "tags": [], "limits": [5]},
            {"name": "x" * 256, "tags": []},
        ],
    }
    answer = api.send("POST", "definitions", body)
    assert answer.status_code == 400
    for wanted in (
        "vhosts[1].limits: 'v': Unrecognised limit 'max-nonsense'",
        "users[1].limits: 'u': max-channels should be a number, actually was 'many'",
        "users[2].limits: 'w': an object is wanted",
        "a user needs a name of 1 to 255 bytes",
    ):
        assert wanted in answer.json()["reason"], answer.json()
    body = {"vhosts": [{"name": unique}, {"name": "v", "default_queue_type": "odd"}]}
    assert "Unsupported queue type 'odd'" in api.send("POST", "definitions", body).json()["reason"]
    assert api.get("definitions") == before
    many = {"queues": [{"name": f"q{n}", "vhost": "nowhere"} for n in range(500)]}
    assert api.send("POST", "definitions", many).json()["reason"].endswith("; and 480 more")


def test_one_vhost_is_exported_and_imported_into_another(api: Api) -> None:
    api.send("POST", "definitions", EXPORTED)
    exported = api.get("definitions/shop")
    assert "users" not in exported and "vhost" not in exported["queues"][0]
    api.send("PUT", "vhosts/copy")
    assert api.status("POST", "definitions/copy", exported) == 204
    assert {q["name"] for q in api.get("queues/copy")} == {"o.new", "o.q"}
    assert len([b for b in api.get("bindings/copy") if b["source"] == "orders"]) == 2
