"""Commands of ``pkb``: the suite's problems and the prompts that go with them."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from client import suite
from problems import hardware, prompts

WRONG_USE = 2


class Parser(argparse.ArgumentParser):
    """Says what was wrong in one sentence and suggests the nearest choice."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USE, f"{self.prog}: {message}\nSee {self.prog} --help.\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = [str(choice) for choice in action.choices] if action.choices else []
        if choices and str(value) not in choices:
            near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise argparse.ArgumentError(action, f"there is no {value!r}; there are {', '.join(choices)}.{hint}")


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(prog="pkb", description="ParallelKernelBench on the command line.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    listing = commands.add_parser("problems", help="list the problems of the suite")
    listing.add_argument("--type", help="only this kind of parallelism, primary or further")
    listing.add_argument("--json", action="store_true", help="one JSON list instead of a table")
    listing.set_defaults(run=list_problems)
    one = commands.add_parser("prompt", help="print the prompt for one problem")
    one.add_argument("problem", metavar="ID", help="number or slug, for example 13 or gemm_allreduce")
    one.set_defaults(run=print_prompt)
    every = commands.add_parser("prompts", help="print the prompts for the whole suite")
    every.add_argument("--jsonl", action="store_true", required=True, help="one JSON object per problem and line")
    every.set_defaults(run=print_prompts)
    for command in (one, every):
        command.add_argument("--backend", choices=list(prompts.BACKENDS), default="cuda", help="default: cuda")
        command.add_argument("--precision", choices=list(prompts.PRECISIONS), help="default: that of the hardware")
        command.add_argument("--hardware", choices=list(hardware.load()), default="h100x8", help="default: h100x8")
    return top


def list_problems(options: argparse.Namespace) -> int:
    """Number, slug, type, difficulty, title."""
    shown = suite.entries()
    if options.type:
        kinds = sorted({kind for entry in shown for kind in (entry["type"], *entry["also"])})
        if options.type not in kinds:
            raise suite.Unknown(f"There is no type {options.type!r}; there are {', '.join(kinds)}.")
        shown = [entry for entry in shown if options.type in (entry["type"], *entry["also"])]
    if options.json:
        keys = ("id", "slug", "title", "type", "also", "difficulty", "run_dtypes", "digest")
        print(json.dumps([{key: entry[key] for key in keys} for entry in shown], ensure_ascii=False))
        return 0
    width = max(len(entry["slug"]) for entry in shown)
    for entry in shown:
        kind, level = entry["type"], f"{entry['difficulty']}/5"
        print(f"{entry['id']:>3}  {entry['slug']:<{width}}  {kind:<12}  {level}  {entry['title']}")
    return 0


def print_prompt(options: argparse.Namespace) -> int:
    """The prompt for one problem, as text."""
    target = hardware.load()[options.hardware]
    entry = suite.find(options.problem, suite.entries())
    sys.stdout.write(prompts.build(entry, options.backend, options.precision or target.precision, target))
    return 0


def print_prompts(options: argparse.Namespace) -> int:
    """JSONL; what does not fit the choice is left out and named on standard error."""
    target = hardware.load()[options.hardware]
    choice = (options.backend, options.precision or target.precision, target)
    left_out = []
    for entry in suite.entries():
        reason = prompts.refusal(entry, *choice)
        if reason:
            left_out.append(reason)
        else:
            sys.stdout.write(prompts.as_json_line(entry, *choice))
    if left_out:
        print(f"{len(left_out)} left out:", *left_out, sep="\n  ", file=sys.stderr)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 if it did what was asked, 2 if it could not be asked so."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (suite.Unknown, prompts.Refusal) as error:
        print(f"pkb: {error}", file=sys.stderr)
        return WRONG_USE
    except BrokenPipeError:  # the reader has seen enough, as with `pkb prompts --jsonl | head`
        sys.stderr.close()
        return 0
