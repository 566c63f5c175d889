"""`penstock completion SHELL`: what a shell needs to complete a command line, made from the parsers.

    source <(penstock completion bash)          in ~/.bashrc; zsh likewise
    penstock completion fish > ~/.config/fish/completions/penstock.fish

The scripts hold the words of every command, so nothing is started while somebody types. Words of things
(queues, users) are not completed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Final

from penstock.cli.commands import FOREIGN, MODULES
from penstock.cli.parsing import Builder, parser_of

__all__ = ["COMMANDS"]

_Words = tuple[tuple[str, ...], list[str]]
"""Words of a command line, and those that may come next."""
_BASH: Final = """\
_penstock() {
    local word words path="" at=1
    while (( at < COMP_CWORD )); do
        word="${COMP_WORDS[at]}"
        case "$path $word" in
@NODES@) path="$path $word" ;;
        esac
        at=$(( at + 1 ))
    done
    case "$path ${COMP_WORDS[COMP_CWORD - 1]}" in
@VALUES@
        *) case "$path" in
@WORDS@
        esac ;;
    esac
    COMPREPLY=( $(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}") )
}
complete -o default -F _penstock penstock
"""
_FISH: Final = """\
function __penstock_words
    set -l path ''
    set -l given (commandline -opc)
    for word in $given[2..-1]
        switch "$path $word"
            case @NODES@
                set path "$path $word"
        end
    end
    switch "$path $given[-1]"
@VALUES@
        case '*'
            switch "$path"
@WORDS@
            end
    end
end
complete -c penstock -f -a '(__penstock_words)'
complete -c penstock -F -n 'not __penstock_words | string match -qv -- "-*"'
"""


def _add_completion(completion: argparse.ArgumentParser) -> None:
    completion.description = (
        "Print what a shell needs to complete commands: source <(penstock completion bash)"
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(run=_completion)


def _completion(parsed: argparse.Namespace) -> int:
    print(_script(parsed.shell), end="")
    return 0


def _script(shell: str) -> str:
    commands: list[_Words] = [((), [*MODULES, "--help", "--version"])]
    values: list[_Words] = []
    for name, (module, _) in MODULES.items():
        if name in FOREIGN:
            verbs = sorted(import_module(f"penstock.cli.{module}").VERBS)
            commands += [((name,), verbs), *(((name, verb), []) for verb in verbs)]
        else:
            parser = parser_of(name)
            commands += _walk(parser, (name,))
            values += _values(parser, (name,))
    nodes = [_spaced(path) for path, _ in commands if path]
    if shell == "fish":
        text, between, case = _FISH, " ", _fish_case
    else:
        text, between, case = _BASH, "|", _bash_case
    text = text.replace("@NODES@", between.join(nodes))
    text = text.replace("@VALUES@", "\n".join(case(*one) for one in values))
    text = text.replace("@WORDS@", "\n".join(case(*one) for one in commands))
    return f"autoload -U +X bashcompinit && bashcompinit\n{text}" if shell == "zsh" else text


def _bash_case(path: Sequence[str], words: Sequence[str]) -> str:
    return f"        {_spaced(path)}) words={_quoted(' '.join(words))} ;;"


def _fish_case(path: Sequence[str], words: Sequence[str]) -> str:
    shown = f"printf '%s\\n' {' '.join(map(_quoted, words))}" if words else "true"
    return f"        case {_spaced(path)}\n            {shown}"


def _spaced(path: Sequence[str]) -> str:
    """Words as a script has them in `path`, with a space in front of each."""
    return _quoted("".join(f" {word}" for word in path))


def _walk(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[_Words]:
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


def _values(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[_Words]:
    """(words so far with an option, its values) of every option that has few values."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from _values(command, (*path, name))
        elif action.choices is not None:
            yield from (((*path, option), [*map(str, action.choices)]) for option in action.option_strings)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


COMMANDS: Final[dict[str, Builder]] = {"completion": _add_completion}
