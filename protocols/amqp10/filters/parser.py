"""Selectors: a condition in SQL, as JMS and RabbitMQ's SQL filters have it, made a function of a message.

    condition   all of: and, separated by OR
    and         all of: not, separated by AND
    not         NOT not | predicate
    predicate   sum
                sum  = <> != < <= > >=  sum
                sum  [NOT] BETWEEN sum AND sum
                sum  [NOT] IN ( sum , ... )
                sum  [NOT] LIKE 'pattern' [ESCAPE 'c']
                sum  IS [NOT] NULL
    sum         product, separated by + -
    product     unary, separated by * / %
    unary       + unary | - unary | constant | identifier | UTC() | ( condition )

Words of the grammar have any case. Expressions nest at most `_DEPTH_MAX` deep, and there are at most
`_NODES_MAX` operations, so a message costs a bounded time. The function is recursive no deeper than the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.protocols.amqp10.filters.errors import SelectorError
from penstock.protocols.amqp10.filters.fields import Value, field_of
from penstock.protocols.amqp10.filters.values import COMPARISONS, OPERATIONS, Like, compared, condition
from penstock.protocols.amqp10.filters.words import Word, words_of

__all__ = ["parse_selector"]

_DEPTH_MAX: Final = 32
_NODES_MAX: Final = 512
_RESERVED: Final = frozenset("AND OR NOT BETWEEN IN LIKE IS NULL ESCAPE TRUE FALSE".split())


def parse_selector(text: str, clock: Callable[[], int]) -> Value:
    """The condition: True, False, or None for unknown. Raises SelectorError.

    `clock` gives ms since the epoch.
    """
    parser = _Parser(words_of(text), clock)
    value = parser.condition()
    if parser.word.kind != "end":
        raise parser.wrong("the end, or another operation")
    return lambda message: condition(value(message))


class _Parser:
    def __init__(self, words: list[Word], clock: Callable[[], int]) -> None:
        self._words = words
        self._clock = clock
        self._at = 0
        self._depth = 0
        self._nodes = 0

    @property
    def word(self) -> Word:
        return self._words[self._at]

    def wrong(self, wanted: str) -> SelectorError:
        word = self.word
        found = "the end" if word.kind == "end" else repr(word.value)
        return SelectorError(f"a selector has {found} at character {word.at + 1}, and wants {wanted}")

    # Words

    def _next(self) -> Word:
        word = self.word
        self._at += 1
        return word

    def _is(self, *keywords: str) -> bool:
        return self.word.kind == "name" and self.word.value.upper() in keywords

    def _skip(self, keyword: str) -> bool:
        if not self._is(keyword):
            return False
        self._at += 1
        return True

    def _is_sign(self, *signs: str) -> bool:
        return self.word.kind == "sign" and self.word.value in signs

    def _skip_sign(self, sign: str) -> bool:
        if not self._is_sign(sign):
            return False
        self._at += 1
        return True

    def _need_sign(self, sign: str) -> None:
        if not self._skip_sign(sign):
            raise self.wrong(repr(sign))

    def _need_text(self) -> str:
        if self.word.kind != "constant" or not isinstance(self.word.value, str):
            raise self.wrong("a text in quotes")
        return str(self._next().value)

    # Limits

    def _node(self, value: Value) -> Value:
        self._nodes += 1
        if self._nodes > _NODES_MAX:
            raise SelectorError(f"a selector has more than {_NODES_MAX} operations")
        return value

    def _nested(self, parse: Callable[[], Value]) -> Value:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise SelectorError(f"a selector nests more than {_DEPTH_MAX} deep")
        value = parse()
        self._depth -= 1
        return value

    # The grammar

    def condition(self) -> Value:
        return self._logical("OR", True, lambda: self._logical("AND", False, self._not))

    def _logical(self, keyword: str, decisive: bool, parse: Callable[[], Value]) -> Value:
        """Conditions of which one that is `decisive` decides; otherwise one that is unknown."""
        parts = [parse()]
        while self._skip(keyword):
            parts.append(self._node(parse()))
        if len(parts) == 1:
            return parts[0]

        def value(message: Any) -> bool | None:
            result: bool | None = not decisive
            for part in parts:
                found = condition(part(message))
                if found is decisive:
                    return decisive
                if found is None:
                    result = None
            return result

        return value

    def _not(self) -> Value:
        if not self._skip("NOT"):
            return self._predicate()
        return self._node(_negated(self._nested(self._not)))

    def _predicate(self) -> Value:
        one = self._sum()
        if self._is_sign(*COMPARISONS):
            compare = COMPARISONS[self._next().value]
            other = self._sum()
            return self._node(lambda message: compared(compare, one(message), other(message)))
        if self._skip("IS"):
            negated = self._skip("NOT")
            if not self._skip("NULL"):
                raise self.wrong("NULL")
            return self._node(lambda message: (one(message) is None) is not negated)
        negated = self._skip("NOT")
        if self._skip("BETWEEN"):
            value = self._between(one)
        elif self._skip("IN"):
            value = self._in(one)
        elif self._skip("LIKE"):
            like = Like(self._need_text(), self._need_text() if self._skip("ESCAPE") else None)
            value = self._node(lambda message: like.matches(one(message)))
        elif negated:
            raise self.wrong("BETWEEN, IN or LIKE")
        else:
            return one
        return _negated(value) if negated else value

    def _between(self, one: Value) -> Value:
        low = self._sum()
        if not self._skip("AND"):
            raise self.wrong("AND")
        high = self._sum()

        def value(message: Any) -> bool | None:
            found = one(message)
            above = compared(COMPARISONS[">="], found, low(message))
            below = compared(COMPARISONS["<="], found, high(message))
            if above is False or below is False:
                return False
            return None if above is None or below is None else True

        return self._node(value)

    def _in(self, one: Value) -> Value:
        self._need_sign("(")
        others = [self._node(self._sum())]
        while self._skip_sign(","):
            others.append(self._node(self._sum()))
        self._need_sign(")")

        def value(message: Any) -> bool | None:
            found = one(message)
            results = [compared(COMPARISONS["="], found, other(message)) for other in others]
            return True if True in results else None if None in results else False

        return self._node(value)

    def _sum(self) -> Value:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._unary))

    def _chain(self, signs: tuple[str, ...], parse: Callable[[], Value]) -> Value:
        first = parse()
        rest: list[tuple[Callable[[Any, Any], Any], Value]] = []
        while self._is_sign(*signs):
            rest.append((OPERATIONS[self._next().value], self._node(parse())))
        if not rest:
            return first

        def value(message: Any) -> Any:
            result = first(message)
            for operation, other in rest:
                result = operation(result, other(message))
            return result

        return value

    def _unary(self) -> Value:
        if not self._is_sign("-", "+"):
            return self._primary()
        operation = OPERATIONS[self._next().value]
        value = self._nested(self._unary)
        return self._node(lambda message: operation(0, value(message)))

    def _primary(self) -> Value:
        word = self.word
        if self._skip_sign("("):
            value = self._nested(self.condition)
            self._need_sign(")")
            return value
        if word.kind == "constant":
            constant = self._next().value
            return lambda _: constant
        if self._is("TRUE", "FALSE"):
            truth = self._next().value.upper() == "TRUE"
            return lambda _: truth
        if word.kind == "delimited":
            return self._node(field_of("a", self._next().value))
        if word.kind == "name" and word.value.upper() not in _RESERVED:
            return self._node(self._identifier(self._next().value))
        raise self.wrong("a value")

    def _identifier(self, name: str) -> Value:
        if self._is_sign("(") and name.upper() == "UTC":
            self._next()
            self._need_sign(")")
            clock = self._clock
            return lambda _: clock()
        parts = [name]
        while self._skip_sign("."):
            if self.word.kind not in ("name", "delimited"):
                raise self.wrong("a name")
            parts.append(self._next().value)
        if len(parts) == 1:
            return field_of(None, name)
        return field_of(parts[0], ".".join(parts[1:]))


def _negated(value: Value) -> Value:
    def negated(message: Any) -> bool | None:
        found = condition(value(message))
        return None if found is None else not found

    return negated
