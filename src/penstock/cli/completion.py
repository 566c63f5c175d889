"""`penstock completion SHELL`: what a shell asks to complete a command line, made from the parser itself.

    source <(penstock completion bash)          in ~/.bashrc; zsh likewise
    penstock completion fish > ~/.config/fish/completions/penstock.fish

The scripts hold the words of every command, so nothing is started while somebody types. Words of things
(queues, users) are not completed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

__all__ = ["SHELLS", "script"]

SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
_penstock() {
    local word path="" at=1
    while (( at < COMP_CWORD )); do
        word="${COMP_WORDS[at]}"
        case "$path $word" in
@NODES@
        esac
        at=$(( at + 1 ))
    done
    case "$path" in
@WORDS@
    esac
    COMPREPLY=( $(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}") )
}
complete -o default -F _penstock penstock
"""


def script(shell: str, parser: argparse.ArgumentParser, verbs: Iterable[str] = ()) -> str:
    """The script for one of `SHELLS`; `verbs` are those of `rabbitmqctl`, which has a parser of its own."""
    further: dict[tuple[str, ...], list[str]] = {("rabbitmqctl",): sorted(verbs)}
    commands = [(path, words + further.get(path, [])) for path, words in _walk(parser, ())]
    if shell == "fish":
        return "".join(_fish(path, words) for path, words in commands)
    nodes = "|".join(_quoted(" " + " ".join(path)) for path, _ in commands if path)
    lines = [
        f"        {_quoted(''.join(f' {word}' for word in path))}) words={_quoted(' '.join(words))} ;;"
        for path, words in commands
    ]
    text = _BASH.replace("@NODES@", f'            {nodes}) path="$path $word" ;;')
    text = text.replace("@WORDS@", "\n".join(lines)).replace("local word path", "local word words path")
    if shell == "zsh":
        return "autoload -U +X bashcompinit && bashcompinit\n" + text
    return text


def _walk(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """(words so far, what may come next) of every command."""
    words: list[str] = []
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below.update(action.choices)
        else:
            words += action.option_strings
            if action.choices is not None and not action.option_strings:
                words += [str(choice) for choice in action.choices]
    yield path, [*below, *words]
    for name, command in below.items():
        yield from _walk(command, (*path, name))


def _fish(path: Sequence[str], words: Sequence[str]) -> str:
    """Lines that offer `words` behind `path`."""
    seen = "".join(f"; and __fish_seen_subcommand_from {word}" for word in path)
    condition = f"true{seen}" if path else "__fish_use_subcommand"
    lines = ["complete -c penstock -f\n"] if not path else []
    for word in words:
        if word.startswith("--"):
            lines.append(f"complete -c penstock -n {_quoted(condition)} -l {word[2:]}\n")
        elif not word.startswith("-"):
            lines.append(f"complete -c penstock -n {_quoted(condition)} -a {_quoted(word)}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
