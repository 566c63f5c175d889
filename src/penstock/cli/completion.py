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
    commands: list[tuple[tuple[str, ...], list[str]]] = [((), [*MODULES, "--help", "--version"])]
    for name, (module, _) in MODULES.items():
        if name in FOREIGN:
            commands.append(((name,), sorted(import_module(f"penstock.cli.{module}").VERBS)))
        else:
            commands += _walk(parser_of(name), (name,))
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


COMMANDS: Final[dict[str, Builder]] = {"completion": _add_completion}
