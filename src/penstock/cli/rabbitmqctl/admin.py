"""The verbs of `penstock rabbitmqctl` about users, permissions, vhosts, policies and limits."""

from __future__ import annotations

import json
import sys
from typing import Final

from penstock.cli.rabbitmqctl.call import (
    Call,
    Failure,
    Groups,
    Item,
    Usage,
    Verb,
    clear_parameter,
    object_of,
    or_missing,
)
from penstock.cli.running.client import ApiError, Client, segment

__all__ = ["GROUPS"]

_OF_POLICY: Final = (
    "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply_to>] <name> <pattern> <definition>"
)


def _add_user(call: Call) -> None:
    call.say(f'Adding user "{call.words[0]}" ...')
    password = call.word(1) or sys.stdin.readline().rstrip("\n")
    if not password:
        raise Failure("Password is not provided via argument or stdin", 70)
    path = f"users/{call.path(0)}"
    try:
        call.client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
    else:
        raise ApiError(f'User "{call.words[0]}" already exists', 409)
    call.client.request("PUT", path, {"password": password, "tags": []})
    call.say(
        "Done. Don't forget to grant the user permissions to some virtual hosts! "
        "See 'rabbitmqctl help set_permissions' to learn more."
    )


def _delete_user(call: Call) -> None:
    call.say(f'Deleting user "{call.words[0]}" ...')
    or_missing(call, "User", lambda: call.client.request("DELETE", f"users/{call.path(0)}"))


def _change_password(call: Call) -> None:
    call.say(f'Changing password for user "{call.words[0]}" ...')
    user = or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    body = {"password": call.words[1], "tags": user["tags"]}
    call.client.request("PUT", f"users/{call.path(0)}", body)


def _clear_password(call: Call) -> None:
    call.say(f'Clearing password for user "{call.words[0]}" ...')
    user = or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    call.client.request("PUT", f"users/{call.path(0)}", {"password_hash": "", "tags": user["tags"]})


def _authenticate_user(call: Call) -> None:
    name = call.words[0]
    call.say(f'Authenticating user "{name}" ...')
    password = call.word(1) or sys.stdin.readline().rstrip("\n")
    with Client(call.parsed.url, login=(name, password)) as client:
        try:
            client.get("whoami")
        except ApiError as error:
            # A user without a tag may log in, too, and is refused what it asks for.
            if error.status != 401 or "cannot log in" in str(error):
                said = f"Error: failed to authenticate user \"{name}\"\nuser '{name}' - invalid credentials"
                raise ApiError(said, 401) from error
    call.say("Success")


def _set_user_tags(call: Call) -> None:
    tags = call.words[1:]
    call.say(f'Setting tags for user "{call.words[0]}" to [{", ".join(tags)}] ...')
    user = or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    kept = {name: user[name] for name in ("password_hash", "hashing_algorithm")}
    call.client.request("PUT", f"users/{call.path(0)}", {**kept, "tags": tags})


def _list_users(call: Call) -> None:
    call.say("Listing users ...")
    call.rows(call.client.get("users"), ("user", "tags"), {"user": "name"})


def _set_permissions(call: Call) -> None:
    call.say(f'Setting permissions for user "{call.words[0]}" in vhost "{call.parsed.vhost}" ...')
    _known(call)
    body = dict(zip(("configure", "write", "read"), call.words[1:4], strict=True))
    call.client.request("PUT", f"permissions/{call.vhost}/{call.path(0)}", body)


def _known(call: Call) -> None:
    """The user in the first word, and the vhost, are there. Raises ApiError in rabbitmqctl's words."""
    or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    _known_vhost(call)


def _known_vhost(call: Call) -> None:
    try:
        call.client.get(f"vhosts/{call.vhost}")
    except ApiError as error:
        if error.status != 404:
            raise
        raise Failure(f"Virtual host {call.parsed.vhost} does not exist", 69) from error


def _clear_permissions(call: Call) -> None:
    call.say(f'Clearing permissions for user "{call.words[0]}" in vhost "{call.parsed.vhost}" ...')
    call.client.request("DELETE", f"permissions/{call.vhost}/{call.path(0)}")


def _list_permissions(call: Call) -> None:
    call.say(f'Listing permissions for vhost "{call.parsed.vhost}" ...')
    call.rows(call.client.get(f"vhosts/{call.vhost}/permissions"), ("user", "configure", "write", "read"))


def _list_user_permissions(call: Call) -> None:
    call.say(f'Listing permissions for user "{call.words[0]}" ...')
    call.rows(call.client.get(f"users/{call.path(0)}/permissions"), ("vhost", "configure", "write", "read"))


def _set_topic_permissions(call: Call) -> None:
    what = f'"{call.words[1]}" for user "{call.words[0]}" in vhost "{call.parsed.vhost}"'
    call.say(f"Setting topic permissions on {what} ...")
    _known(call)
    body = dict(zip(("exchange", "write", "read"), call.words[1:4], strict=True))
    call.client.request("PUT", f"topic-permissions/{call.vhost}/{call.path(0)}", body)


def _clear_topic_permissions(call: Call) -> None:
    call.say(f'Clearing topic permissions for user "{call.words[0]}" in vhost "{call.parsed.vhost}" ...')
    path = f"topic-permissions/{call.vhost}/{call.path(0)}"
    call.client.request("DELETE", path + (f"/{call.path(1)}" if len(call.words) > 1 else ""))


def _list_topic_permissions(call: Call) -> None:
    call.say(f'Listing topic permissions for vhost "{call.parsed.vhost}" ...')
    items = call.client.get(f"vhosts/{call.vhost}/topic-permissions")
    call.rows(items, ("user", "exchange", "write", "read"))


def _list_user_topic_permissions(call: Call) -> None:
    call.say(f'Listing topic permissions for user "{call.words[0]}" ...')
    items = or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}/topic-permissions"))
    # The one list of rabbitmqctl's that has no column names.
    call.rows(items, ("vhost", "exchange", "write", "read"), headers=False)


# Vhosts, policies, limits


def _add_vhost(call: Call) -> None:
    call.say(f'Adding vhost "{call.words[0]}" ...')
    body: Item = {}
    if call.parsed.description is not None:
        body["description"] = call.parsed.description
    if call.parsed.default_queue_type is not None:
        body["default_queue_type"] = call.parsed.default_queue_type
    if call.parsed.tags is not None:
        body["tags"] = call.parsed.tags
    known = {vhost["name"] for vhost in call.client.get("vhosts")}
    call.client.request("PUT", f"vhosts/{call.path(0)}", body)
    if call.words[0] not in known:
        # The API lets who makes a vhost use it; rabbitmqctl is nobody.
        user = call.client.get("whoami")["name"]
        call.client.request("DELETE", f"permissions/{call.path(0)}/{segment(user)}")


def _trace(call: Call) -> None:
    is_on = call.parsed.verb == "trace_on"
    call.say(f'{"Starting" if is_on else "Stopping"} tracing for vhost "{call.parsed.vhost}" ...')
    call.client.get(f"vhosts/{call.vhost}")  # a PUT would make it
    call.client.request("PUT", f"vhosts/{call.vhost}", {"tracing": is_on})
    print(f"Trace {'enabled' if is_on else 'disabled'} for vhost {call.parsed.vhost}")


def _set_vhost_tags(call: Call) -> None:
    tags = call.words[1:]
    call.say(f'Setting tags for virtual host "{call.words[0]}" to [{", ".join(tags)}] ...')
    or_missing(call, "Virtual host", lambda: call.client.get(f"vhosts/{call.path(0)}"))
    call.client.request("PUT", f"vhosts/{call.path(0)}", {"tags": ",".join(tags)})


def _delete_vhost(call: Call) -> None:
    call.say(f'Deleting vhost "{call.words[0]}" ...')
    or_missing(call, "Virtual host", lambda: call.client.request("DELETE", f"vhosts/{call.path(0)}"))


def _list_vhosts(call: Call) -> None:
    call.say("Listing vhosts ...")
    call.rows(call.client.get("vhosts"), call.words or ("name",))


def _set_policy(call: Call, kind: str = "policies") -> None:
    name, pattern, definition = call.words[:3]
    with_ = f'with priority "{call.parsed.priority}" for vhost "{call.parsed.vhost}"'
    call.say(f'Setting policy "{name}" for pattern "{pattern}" to "{definition}" {with_} ...')
    try:
        parsed = json.loads(definition)
    except ValueError as error:
        raise Usage(f"the definition of policy {name!r} is not JSON: {error}") from error
    body = {
        "pattern": pattern,
        "definition": parsed,
        "priority": call.parsed.priority,
        "apply-to": call.parsed.apply_to,
    }
    call.client.request("PUT", f"{kind}/{call.vhost}/{segment(name)}", body)


def _clear_policy(call: Call, kind: str = "policies") -> None:
    call.say(f'Clearing policy "{call.words[0]}" on vhost "{call.parsed.vhost}" ...')
    clear_parameter(call, f"{kind}/{call.vhost}/{call.path(0)}")


def _list_policies(call: Call, kind: str = "policies") -> None:
    call.say(f'Listing policies for vhost "{call.parsed.vhost}" ...')
    items = [
        {**item, "definition": json.dumps(item["definition"], separators=(",", ":"))}
        for item in call.client.get(f"{kind}/{call.vhost}")
    ]
    call.rows(items, ("vhost", "name", "pattern", "apply-to", "definition", "priority"))


def _set_vhost_limits(call: Call) -> None:
    call.say(f'Setting vhost limits to "{call.words[0]}" for vhost "{call.parsed.vhost}" ...')
    _known_vhost(call)
    for name, value in object_of(call.words[0]).items():
        call.client.request("PUT", f"vhost-limits/{call.vhost}/{segment(name)}", {"value": value})


def _list_limits(call: Call, path: str, key: str, of: str, everybody: str) -> None:
    """Those of one as a JSON object; without a name, of all as a table."""
    if of:
        call.say(f'Listing limits for {key} "{of}" ...')
        found = call.client.get(f"{path}/{segment(of)}")
        print(json.dumps(found[0]["value"] if found else {}, separators=(",", ":")))
        return
    call.say(f"Listing limits for all {everybody} ...")
    items = [
        {key: item[key], "limits": json.dumps(item["value"], separators=(",", ":"))}
        for item in call.client.get(path)
    ]
    call.rows(items, (key, "limits"))


def _list_vhost_limits(call: Call) -> None:
    of = "" if call.parsed.everywhere else call.parsed.vhost
    if of:
        _known_vhost(call)
    _list_limits(call, "vhost-limits", "vhost", of, "vhosts")


def _list_user_limits(call: Call) -> None:
    _list_limits(call, "user-limits", "user", call.parsed.user or "", "users")


def _clear_user_limits(call: Call) -> None:
    user, limit = call.words[:2]
    what = "all limits" if limit == "all" else f'"{limit}" limit'
    call.say(f'Clearing {what} for user "{user}" ...')
    or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    found = call.client.get(f"user-limits/{call.path(0)}")
    for name in found[0]["value"] if found else ():
        if limit in ("all", name):
            call.client.request("DELETE", f"user-limits/{call.path(0)}/{segment(name)}")


def _clear_vhost_limits(call: Call) -> None:
    call.say(f'Clearing vhost "{call.parsed.vhost}" limits ...')
    _known_vhost(call)
    for item in call.client.get(f"vhost-limits/{call.vhost}"):
        for name in item["value"]:
            call.client.request("DELETE", f"vhost-limits/{call.vhost}/{segment(name)}")


def _set_user_limits(call: Call) -> None:
    call.say(f'Setting user limits to "{call.words[1]}" for user "{call.words[0]}" ...')
    or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    for name, value in object_of(call.words[1]).items():
        call.client.request("PUT", f"user-limits/{call.path(0)}/{segment(name)}", {"value": value})


GROUPS: Final[Groups] = {
    "Users": {
        "add_user": Verb(
            _add_user,
            "Makes a user without permissions; a password that is not given is read from standard input",
            "<username> [<password>]",
        ),
        "authenticate_user": Verb(
            _authenticate_user, "Says whether a user may log in with a password", "<username> [<password>]"
        ),
        "change_password": Verb(_change_password, "Changes the password of a user", "<username> <password>"),
        "clear_password": Verb(_clear_password, "Takes the password of a user away", "<username>"),
        "clear_user_limits": Verb(
            _clear_user_limits, "Takes limits of a user back", "<username> <limit_name | all>"
        ),
        "delete_user": Verb(_delete_user, "Deletes a user and closes its connections", "<username>"),
        "list_user_limits": Verb(
            _list_user_limits, "Lists limits of users", "[--user <username>] [--global]"
        ),
        "list_users": Verb(_list_users, "Lists users and their tags"),
        "set_user_limits": Verb(_set_user_limits, "Sets limits of a user", "<username> <definition>"),
        "set_user_tags": Verb(_set_user_tags, "Sets the tags of a user", "<username> [<tag> ...]"),
    },
    "Access Control": {
        "clear_permissions": Verb(
            _clear_permissions, "Shuts a virtual host to a user", "[--vhost <vhost>] <username>"
        ),
        "clear_topic_permissions": Verb(
            _clear_topic_permissions,
            "Takes the topic permissions of a user back",
            "[--vhost <vhost>] <username> [<exchange>]",
        ),
        "list_permissions": Verb(
            _list_permissions, "Lists the permissions in a virtual host", "[--vhost <vhost>]"
        ),
        "list_topic_permissions": Verb(
            _list_topic_permissions, "Lists the topic permissions in a virtual host", "[--vhost <vhost>]"
        ),
        "list_user_permissions": Verb(
            _list_user_permissions, "Lists the permissions of a user in all virtual hosts", "<username>"
        ),
        "list_user_topic_permissions": Verb(
            _list_user_topic_permissions, "Lists the topic permissions of a user", "<username>"
        ),
        "list_vhosts": Verb(_list_vhosts, "Lists virtual hosts", "[<column> ...]"),
        "set_permissions": Verb(
            _set_permissions,
            "Says what a user may configure, write and read: regular expressions on names",
            "[--vhost <vhost>] <username> <conf> <write> <read>",
        ),
        "set_topic_permissions": Verb(
            _set_topic_permissions,
            "Says which routing keys of an exchange a user may write and read",
            "[--vhost <vhost>] <username> <exchange> <write> <read>",
        ),
    },
    "Virtual hosts": {
        "add_vhost": Verb(
            _add_vhost,
            "Makes a virtual host",
            "<vhost> [--description <text>] [--tags <tags>] [--default-queue-type <type>]",
        ),
        "clear_vhost_limits": Verb(
            _clear_vhost_limits, "Takes the limits of a virtual host back", "[--vhost <vhost>]"
        ),
        "delete_vhost": Verb(_delete_vhost, "Deletes a virtual host with everything in it", "<vhost>"),
        "list_vhost_limits": Verb(
            _list_vhost_limits, "Lists limits of virtual hosts", "[--vhost <vhost>] [--global]"
        ),
        "set_vhost_limits": Verb(
            _set_vhost_limits, "Sets limits of a virtual host", "[--vhost <vhost>] <definition>"
        ),
        "set_vhost_tags": Verb(_set_vhost_tags, "Sets the tags of a virtual host", "<vhost> [<tag> ...]"),
        "trace_off": Verb(_trace, "Ends the tracing of a virtual host", "[--vhost <vhost>]"),
        "trace_on": Verb(_trace, "Traces the messages of a virtual host", "[--vhost <vhost>]"),
    },
    "Policies": {
        "clear_operator_policy": Verb(
            lambda call: _clear_policy(call, "operator-policies"),
            "Takes an operator policy back",
            "[--vhost <vhost>] <name>",
        ),
        "clear_policy": Verb(_clear_policy, "Takes a policy back", "[--vhost <vhost>] <name>"),
        "list_operator_policies": Verb(
            lambda call: _list_policies(call, "operator-policies"),
            "Lists the operator policies of a virtual host",
            "[--vhost <vhost>]",
        ),
        "list_policies": Verb(_list_policies, "Lists the policies of a virtual host", "[--vhost <vhost>]"),
        "set_operator_policy": Verb(
            lambda call: _set_policy(call, "operator-policies"),
            "Makes an operator policy, or changes one",
            _OF_POLICY,
        ),
        "set_policy": Verb(_set_policy, "Makes a policy, or changes one", _OF_POLICY),
    },
}
