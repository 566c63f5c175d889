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
from penstock.protocols.amqp10.filters.fields import field_of
from penstock.protocols.amqp10.filters.lexer import Word, words_of
from penstock.protocols.amqp10.filters.terms import Term, Value, tree_of
from penstock.protocols.amqp10.filters.values import COMPARISONS, OPERATIONS, Like, compared, condition

__all__ = ["parse_selector"]

_DEPTH_MAX: Final = 32
_NODES_MAX: Final = 512
_RESERVED: Final = frozenset("AND OR NOT BETWEEN IN LIKE IS NULL ESCAPE TRUE FALSE".split())


def parse_selector(text: str, clock: Callable[[], int]) -> Term:
    """The condition: True, False, or None for unknown. Raises SelectorError.

    `clock` gives ms since the epoch.
    """
    parser = _Parser(words_of(text), clock)
    found = parser.condition()
    if parser.word.kind != "end":
        raise parser.wrong("the end, or another operation")
    value = found.value
    return Term(lambda message: condition(value(message)), found.tree)


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

    def _node(self, term: Term) -> Term:
        self._nodes += 1
        if self._nodes > _NODES_MAX:
            raise SelectorError(f"a selector has more than {_NODES_MAX} operations")
        return term

    def _nested(self, parse: Callable[[], Term]) -> Term:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise SelectorError(f"a selector nests more than {_DEPTH_MAX} deep")
        term = parse()
        self._depth -= 1
        return term

    # The grammar

    def condition(self) -> Term:
        return self._logical("OR", True, lambda: self._logical("AND", False, self._not))

    def _logical(self, keyword: str, decisive: bool, parse: Callable[[], Term]) -> Term:
        """Conditions of which one that is `decisive` decides; otherwise one that is unknown."""
        parts = [parse()]
        while self._skip(keyword):
            parts.append(self._node(parse()))
        if len(parts) == 1:
            return parts[0]
        values = [part.value for part in parts]

        def value(message: Any) -> bool | None:
            result: bool | None = not decisive
            for part in values:
                found = condition(part(message))
                if found is decisive:
                    return decisive
                if found is None:
                    result = None
            return result

        return Term(value, tree_of("any" if decisive else "all", [part.tree for part in parts]))

    def _not(self) -> Term:
        if not self._skip("NOT"):
            return self._predicate()
        return self._node(_negated(self._nested(self._not)))

    def _predicate(self) -> Term:
        term = self._sum()
        one = term.value
        if self._is_sign(*COMPARISONS):
            sign = self._next().value
            compare, right = COMPARISONS[sign], self._sum()
            other = right.value
            tree = tree_of("compared", sign, term.tree, right.tree)
            return self._node(Term(lambda message: compared(compare, one(message), other(message)), tree))
        if self._skip("IS"):
            negated = self._skip("NOT")
            if not self._skip("NULL"):
                raise self.wrong("NULL")
            tree = tree_of("null", term.tree, negated)
            return self._node(Term(lambda message: (one(message) is None) is not negated, tree))
        negated = self._skip("NOT")
        if self._skip("BETWEEN"):
            found = self._between(term)
        elif self._skip("IN"):
            found = self._in(term)
        elif self._skip("LIKE"):
            like = Like(self._need_text(), self._need_text() if self._skip("ESCAPE") else None)
            tree = None if term.tree is None else ("like", term.tree, like.parts)
            found = self._node(Term(lambda message: like.matches(one(message)), tree))
        elif negated:
            raise self.wrong("BETWEEN, IN or LIKE")
        else:
            return term
        return _negated(found) if negated else found

    def _between(self, term: Term) -> Term:
        terms = [term, self._sum()]
        if not self._skip("AND"):
            raise self.wrong("AND")
        terms.append(self._sum())
        one, low, high = (part.value for part in terms)

        def value(message: Any) -> bool | None:
            found = one(message)
            above = compared(COMPARISONS[">="], found, low(message))
            below = compared(COMPARISONS["<="], found, high(message))
            if above is False or below is False:
                return False
            return None if above is None or below is None else True

        return self._node(Term(value, tree_of("between", *(part.tree for part in terms))))

    def _in(self, term: Term) -> Term:
        self._need_sign("(")
        others = [self._node(self._sum())]
        while self._skip_sign(","):
            others.append(self._node(self._sum()))
        self._need_sign(")")
        one, values = term.value, [other.value for other in others]

        def value(message: Any) -> bool | None:
            found = one(message)
            results = [compared(COMPARISONS["="], found, other(message)) for other in values]
            return True if True in results else None if None in results else False

        return self._node(Term(value, tree_of("in", term.tree, [other.tree for other in others])))

    def _sum(self) -> Term:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._unary))

    def _chain(self, signs: tuple[str, ...], parse: Callable[[], Term]) -> Term:
        first = parse()
        rest: list[tuple[Callable[[Any, Any], Any], Value]] = []
        while self._is_sign(*signs):
            rest.append((OPERATIONS[self._next().value], self._node(parse()).value))
        if not rest:
            return first
        begins = first.value

        def value(message: Any) -> Any:
            result = begins(message)
            for operation, other in rest:
                result = operation(result, other(message))
            return result

        return Term(value)

    def _unary(self) -> Term:
        if not self._is_sign("-", "+"):
            return self._primary()
        operation = OPERATIONS[self._next().value]
        term = self._nested(self._unary)
        value, tree = term.value, term.tree
        if tree is not None and tree[0] == "constant":
            return self._node(_constant(operation(0, tree[1])))
        return self._node(Term(lambda message: operation(0, value(message))))

    def _primary(self) -> Term:
        word = self.word
        if self._skip_sign("("):
            term = self._nested(self.condition)
            self._need_sign(")")
            return term
        if word.kind == "constant":
            return _constant(self._next().value)
        if self._is("TRUE", "FALSE"):
            return _constant(self._next().value.upper() == "TRUE")
        if word.kind == "delimited":
            return self._node(field_of("a", self._next().value))
        if word.kind == "name" and word.value.upper() not in _RESERVED:
            return self._node(self._identifier(self._next().value))
        raise self.wrong("a value")

    def _identifier(self, name: str) -> Term:
        if self._is_sign("(") and name.upper() == "UTC":
            self._next()
            self._need_sign(")")
            clock = self._clock
            return Term(lambda _: clock())
        parts = [name]
        while self._skip_sign("."):
            if self.word.kind not in ("name", "delimited"):
                raise self.wrong("a name")
            parts.append(self._next().value)
        if len(parts) == 1:
            return field_of(None, name)
        return field_of(parts[0], ".".join(parts[1:]))


def _constant(value: Any) -> Term:
    return Term(lambda _: value, ("constant", value))


def _negated(term: Term) -> Term:
    value = term.value

    def negated(message: Any) -> bool | None:
        found = condition(value(message))
        return None if found is None else not found

    return Term(negated, tree_of("not", term.tree))
