"""The table of methods is that of the specification."""

from __future__ import annotations

import re

from pamqp import commands

from penstock.protocols.amqp.codec.methods import METHODS, NAMES

LETTERS = {"bit": "b", "octet": "o", "short": "h", "long": "l", "shortstr": "s", "longstr": "S", "table": "t"}
"""Types of fields of methods without content -> the letters of `_tables.pyx`."""


def test_names_ids_and_fields_are_those_of_pamqps_catalogue() -> None:
    catalogue = {}
    for number, kind in commands.INDEX_MAPPING.items():
        kinds = [kind.amqp_type(field) for field in kind.attributes()]
        if all(one in LETTERS for one in kinds):
            class_name, _, method = kind.name.partition(".")
            name = f"{class_name}.{re.sub('(?<!^)(?=[A-Z])', '-', method)}".lower()
            catalogue[name] = (number >> 16, number & 0xFFFF), "".join(LETTERS[one] for one in kinds)
    # RabbitMQ still answers it; the specification and pamqp do not know it.
    answered = {"access.request": ((30, 10), "sbbbbb"), "access.request-ok": ((30, 11), "h")}
    assert catalogue | answered == NAMES


def test_each_method_of_a_client_has_a_name_for_each_field() -> None:
    for index, (kind, letters) in METHODS.items():
        assert len(kind._fields) == len(letters), index
