"""The dry run of definitions with several workers: each vhost is one worker's, and the answer is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api

NOTHING = {"create": {}, "change": {}, "conflict": {}, "kept": {}, "unknown": []}
VHOSTS = ("of-0", "of-1")
"""By the worker that has it."""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway of two workers, each with a vhost in which there is a queue."""
    settings = {**SETTINGS, "server.workers": "2"}
    with Gateway(tmp_path_factory.mktemp("workers"), settings=settings) as gateway:
        with closing(Api(gateway)) as api:
            for worker, vhost in enumerate(VHOSTS):
                assert api.status("PUT", f"vhosts/{vhost}", {"worker": worker}) == 201
                assert api.status("PUT", f"queues/{vhost}/there", {"durable": True}) == 201
        yield gateway


@pytest.fixture
def of_two(workers: Gateway) -> Iterator[Api]:
    """Requests of an administrator to it."""
    with closing(Api(workers)) as api:
        yield api


def queue(vhost: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"vhost": vhost, "name": name, "durable": True, "auto_delete": False, "arguments": arguments}


def dry_run(api: Api, path: str, file: object) -> Any:
    answer = api.send("POST", path, file)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_file_of_the_same_changes_nothing(of_two: Api) -> None:
    whole = of_two.get("definitions")
    assert {one["vhost"] for one in whole["queues"]} == set(VHOSTS)
    assert dry_run(of_two, "definitions-dry-run", whole) == NOTHING
    for vhost in VHOSTS:
        part = of_two.get(f"definitions/{vhost}")
        assert dry_run(of_two, f"definitions-dry-run/{vhost}", part) == NOTHING


def test_it_says_what_would_change_in_the_vhosts_of_each_worker(of_two: Api) -> None:
    file = {
        "vhosts": [{"name": "new"}],
        "queues": [
            *(queue(vhost, "there", **{"x-max-length": 5}) for vhost in VHOSTS),
            *(queue(vhost, "other") for vhost in (*VHOSTS, "new")),
        ],
    }
    found = dry_run(of_two, "definitions-dry-run", file)
    assert found["create"]["vhosts"] == [{"name": "new"}]
    assert [one["vhost"] for one in found["create"]["queues"]] == [*VHOSTS, "new"]
    assert found["conflict"] == {
        "queues": [{"vhost": vhost, "name": "there", "differs": ["arguments"]} for vhost in VHOSTS]
    }
    assert len(of_two.get("queues")) == len(VHOSTS), "nothing has changed"
    for vhost in VHOSTS:
        one = dry_run(of_two, f"definitions-dry-run/{vhost}", {"queues": [queue(vhost, "other")]})
        assert one["create"] == {"queues": [{"vhost": vhost, "name": "other"}]}


@pytest.mark.parametrize("vhost", VHOSTS)
def test_a_mistake_is_found_by_the_worker_that_has_the_vhost(of_two: Api, vhost: str) -> None:
    file = {"exchanges": [{"vhost": vhost, "name": "x", "type": "nonsense"}]}
    answer = of_two.send("POST", "definitions-dry-run", file)
    assert answer.status_code == 400
    assert "nonsense" in answer.json()["reason"]
    file = {"queues": [queue(vhost, "q", **{"x-dead-letter-exchange": 7})]}
    assert of_two.status("POST", "definitions-dry-run", file) == 400


def test_users_without_the_right_are_refused(workers: Gateway, of_two: Api) -> None:
    assert of_two.status("PUT", "users/ann", {"password": "p", "tags": "policymaker"}) == 201
    with closing(Api(workers, "ann", "p")) as ann:
        for path in ("definitions-dry-run", *(f"definitions-dry-run/{vhost}" for vhost in VHOSTS)):
            assert ann.status("POST", path, {}) == 401
