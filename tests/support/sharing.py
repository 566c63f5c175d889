"""The deliveries and acknowledgements of group members, and whether they were allowed.

A ledger sees each delivery, and hears what a member is about to say before it says it. So what it finds is a
fault whatever the network does meanwhile: what a member has seen and said nothing of, it holds.

    held        one member has a message at a time; of a keyed group one member has a key
    settled     acknowledged, and the gateway has said so (`confirmed`): it does not come again
    in doubt    acknowledged on a connection that was lost before it was confirmed: it may come again, or not
    order       of a key that is never given back: rising, but for what was held, or in doubt, of who left
    flagged     what came before says so
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["KEYS", "Ledger", "gives_back", "key_of"]

KEYS = 12


def key_of(number: int) -> int:
    return number % KEYS


def gives_back(number: int) -> bool:
    """Whether its key is one of those whose messages may be given back: nobody promises their order."""
    return key_of(number) % 3 == 0


class Ledger:
    """Of one group. Members are told apart by name; `flags`: its protocol says what came before."""

    def __init__(self, group: str, *, keyed: bool, flags: bool) -> None:
        self.group = group
        self.keyed = keyed
        self.flags = flags
        self.faults: list[str] = []
        self.settled: set[int] = set()
        self.in_doubt: set[int] = set()
        self.deliveries = self.returned = self.aborted = self.left = 0
        self._held: dict[int, str] = {}
        self._unconfirmed: dict[str, set[int]] = {}
        self._history: dict[int, list[str]] = {}
        """Of each message: what happened to it, for faults to tell."""
        self._last = dict.fromkeys(range(KEYS), -1)
        """By key: the number that the next one is above."""

    @property
    def done(self) -> set[int]:
        """The messages that may be settled."""
        return self.settled | self.in_doubt

    def came(self, member: str, number: int, redelivered: bool) -> None:
        """It was given a message."""
        self.deliveries += 1
        key = key_of(number)
        if number in self._held:
            self._fault(number, f"came to {member} while {self._held[number]} has it")
        if number in self.settled:
            self._fault(number, f"came to {member} after it was settled")
        if self.flags and number in self._history and not redelivered:
            self._fault(number, f"came to {member} again, and not flagged")
        if self.keyed:
            others = {n: who for n, who in self._held.items() if key_of(n) == key and who != member}
            if others:
                self._fault(number, f"of key {key} came to {member} while others have {others}")
            if not gives_back(number) and number <= self._last[key]:
                self._fault(number, f"of key {key} came to {member} after {self._last[key]}")
            self._last[key] = number
        self._note(number, f"came to {member}")
        self._held[number] = member
        self.in_doubt.discard(number)

    def acknowledges(self, member: str, numbers: Iterable[int]) -> None:
        """It is about to."""
        for number in numbers:
            self._note(number, f"acknowledged by {self._held.pop(number)}")
            self._unconfirmed.setdefault(member, set()).add(number)

    def confirmed(self, member: str, by: str) -> None:
        """The gateway has seen all that it acknowledged."""
        for number in self._unconfirmed.pop(member, set()):
            self._note(number, f"settled by {by}")
            self.settled.add(number)

    def gives(self, member: str, numbers: Iterable[int]) -> None:
        """It is about to give these back."""
        for number in numbers:
            self.returned += 1
            self._note(number, f"given back by {self._held.pop(number)}")

    def leaves(self, member: str) -> None:
        """It is about to be closed: what it holds goes back. Then it is `confirmed`."""
        self.left += 1
        self._returns(number for number, who in self._held.items() if who == member)

    def loses(self, member: str) -> None:
        """Its connection is about to be lost."""
        self.aborted += 1
        doubtful = self._unconfirmed.pop(member, set())
        self.in_doubt |= doubtful
        self._returns([*doubtful, *(number for number, who in self._held.items() if who == member)])

    def _returns(self, numbers: Iterable[int]) -> None:
        for number in list(numbers):
            self._note(number, f"left by {self._held.pop(number, 'one that had acknowledged it')}")
            self._last[key_of(number)] = min(self._last[key_of(number)], number - 1)

    def _note(self, number: int, event: str) -> None:
        self._history.setdefault(number, []).append(event)

    def _fault(self, number: int, fault: str) -> None:
        before = ", ".join(self._history.get(number, ["nothing"]))
        self.faults.append(f"{self.group}: {number} {fault}; before that: {before}")
