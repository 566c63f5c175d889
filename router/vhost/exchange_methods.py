"""The methods of a vhost that declare, delete, bind and unbind exchanges. See `vhost`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.router.arguments import Arguments, encode_table
from penstock.router.authorization.identity import Actor
from penstock.router.errors import (
    InUse,
    InvalidParameter,
    NotFound,
    ReservedName,
    SystemExchange,
)
from penstock.router.exchanges.arguments import check_exchange, check_exchange_type, check_same_exchange
from penstock.router.exchanges.deduplication import DEDUPLICATING_TYPE, Seen
from penstock.router.exchanges.entries import Binding
from penstock.router.exchanges.exchanges import RECENT_TYPE, Exchange
from penstock.router.exchanges.recent_history import Recent, hand_over
from penstock.router.names import RESERVED_PREFIX, clean_name, wire
from penstock.router.rows import row_key
from penstock.router.vhost.state import VhostState

__all__ = ["NO_ARGUMENTS", "ExchangeMethods"]

NO_ARGUMENTS: Final[Arguments] = {}


class ExchangeMethods(VhostState):
    """See the module."""

    def declare_exchange(
        self,
        name: str,
        type_: str,
        actor: Actor,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> int:
        """Make an exchange, or find that it is as declared; the LSN to wait for.

        Raises:
            UnknownType, DefaultExchange, ReservedName, AccessRefused: it cannot be made.
            InvalidArgument: `alternate-exchange` is no name, `x-delayed-type` no type.
            Inequivalent: it exists otherwise.
            NotFound: `passive`, and it does not exist.
            InvalidHash, InvalidLength, InvalidParameter: its type cannot have these arguments.

        """
        name = clean_name(name)
        if passive:
            self._not_default(name)
            self._permit_any(actor, "exchange", name)
            if name not in self.exchanges:
                raise NotFound("exchange", name, self.name)
            return 0
        arguments = arguments or NO_ARGUMENTS
        check_exchange_type(type_, arguments, name, self.name)
        self._not_default(name)
        self._permit(actor, "configure", "exchange", name)
        found = self.exchanges.get(name)
        if found is not None:
            check_same_exchange(
                found,
                type_,
                arguments,
                self.name,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
            )
            return found.lsn
        check_exchange(type_, arguments, name, self.name)
        if name.startswith(RESERVED_PREFIX):
            raise ReservedName("exchange", name, self.name)
        alternate = arguments.get("alternate-exchange")
        if isinstance(alternate, str):
            self._permit(actor, "read", "exchange", name)
            self._permit(actor, "write", "exchange", alternate)
            self._permit_leading(actor, alternate, None)
        with self.changing():
            exchange = self._add_exchange(
                Exchange(
                    name,
                    type_,
                    self.topology,
                    durable=durable,
                    auto_delete=auto_delete,
                    internal=internal,
                    arguments=arguments,
                )
            )
            if durable:
                row = {
                    "vhost": self.name,
                    "name": name,
                    "type": type_,
                    "auto_delete": auto_delete,
                    "internal": internal,
                    "arguments": exchange.arguments,
                }
                exchange.lsn = self.broker.log.tables.put(
                    "exchange", row_key(self.name, name), encode_table(row)
                )
        return exchange.lsn

    def _add_exchange(self, exchange: Exchange) -> Exchange:
        self.exchanges[exchange.name] = exchange
        exchange.policy_alternate = self.policies.alternate(exchange.name)
        if exchange.type == DEDUPLICATING_TYPE:
            exchange.seen = Seen(self.broker.log, self.name, exchange.name, exchange.arguments)
        if exchange.type == RECENT_TYPE:
            exchange.recent = Recent(exchange.arguments, self.headers_of)
        self._names.touch_all()
        return exchange

    def delete_exchange(self, name: str, actor: Actor, *, if_unused: bool = False) -> int:
        """Remove an exchange with its bindings, both ways; fine when there is none. The LSN to wait for.

        Raises:
            DefaultExchange, SystemExchange, AccessRefused: it cannot be deleted.
            InUse: `if_unused`, and something is bound to it.

        """
        name = clean_name(name)
        self._not_default(name)
        if name.startswith(RESERVED_PREFIX):
            raise SystemExchange(name, self.name)
        self._permit(actor, "configure", "exchange", name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            return 0
        if if_unused and exchange.bindings:
            raise InUse("exchange", name, self.name)
        with self.changing():
            return self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> int:
        del self.exchanges[exchange.name]
        lsn = 0
        if exchange.seen is not None:
            exchange.seen.clear()
        if exchange.durable:
            lsn = self.broker.log.tables.delete("exchange", row_key(self.name, exchange.name))
        for binding in list(exchange.bindings.values()):
            lsn = max(lsn, self.bindings.remove(binding))
        incoming = list(exchange.incoming)
        for binding in incoming:
            lsn = max(lsn, self.bindings.remove(binding))
        exchange.scope.touch_all()
        self._names.touch_all()
        return max(lsn, self._end_unbound(incoming))

    def _end_unbound(self, removed: Iterable[Binding]) -> int:
        """Auto-delete exchanges go when the last binding from them has gone."""
        lsn = 0
        for source in {binding.source for binding in removed}:
            if source.auto_delete and not source.bindings and self.exchanges.get(source.name) is source:
                lsn = max(lsn, self._remove_exchange(source))
        return lsn

    def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str,
        actor: Actor,
        arguments: Arguments | None = None,
    ) -> int:
        """Bind an exchange to an exchange; cycles are fine. The LSN to wait for.

        Raises:
            DefaultExchange, AccessRefused, NotFound, InvalidMatch, InvalidPattern: it cannot be bound.
            InvalidParameter: `destination` takes no messages from exchanges.

        """
        ends = self._exchange_ends(destination, source, actor)
        self._permit_topic(actor, ends[1], routing_key)
        by_key = ends[1].is_topic or ends[1].type == "direct"
        self._permit_leading(actor, ends[0].name, wire(routing_key) if by_key else None)
        if ends[0].seen is not None:
            raise InvalidParameter(
                f"exchange '{destination}' of type '{DEDUPLICATING_TYPE}' takes messages from publishers "
                "only",
                "bind from it, not to it",
            )
        with self.changing():
            binding, new = self.bindings.add(ends[1], ends[0], routing_key, arguments or NO_ARGUMENTS)
        return max(binding.lsn, hand_over(self, *reversed(ends)) if new else 0)

    def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str,
        actor: Actor,
        arguments: Arguments | None = None,
    ) -> int:
        """Take such a binding back; fine when there is none, or one of its ends. The LSN to wait for.

        Raises:
            DefaultExchange, AccessRefused: it cannot be unbound.

        """
        try:
            target, start = self._exchange_ends(destination, source, actor)
        except NotFound:
            return 0
        self._permit_topic(actor, start, routing_key)
        return self._unbind(self.bindings.find(start, target, routing_key, arguments or NO_ARGUMENTS))

    def _exchange_ends(self, destination: str, source: str, actor: Actor) -> tuple[Exchange, Exchange]:
        destination, source = clean_name(destination), clean_name(source)
        self._not_default(destination)
        self._not_default(source)
        self._permit(actor, "write", "exchange", destination)
        self._permit(actor, "read", "exchange", source)
        from_ = self._exchange(source)  # RabbitMQ names this one when both are missing
        return self._exchange(destination), from_

    def _unbind(self, binding: Binding | None) -> int:
        if binding is None:
            return 0
        with self.changing():
            lsn = self.bindings.remove(binding)
            return max(lsn, self._end_unbound((binding,)))
