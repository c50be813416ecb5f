"""Command line of the suite: ``python -m problems.suite list | show | reference | check | manifest``."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time

from problems.suite import registry


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status (1: a check failed or the manifest is stale, 2: bad usage)."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m problems.suite", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="all problems")
    listing.add_argument("--json", action="store_true", help="as a JSON list")
    listing.set_defaults(run=_list)
    show = commands.add_parser("show", help="what is known of one problem")
    show.add_argument("id", help="id, slug or alias")
    show.set_defaults(run=_show)
    reference = commands.add_parser("reference", help="the reference as one self-contained file")
    reference.add_argument("id", help="id, slug or alias")
    reference.set_defaults(run=_reference)
    check = commands.add_parser("check", help="prove problems on the CPU")
    check.add_argument("--ids", type=_names, default=[], metavar="ID,ID", help="these only")
    check.add_argument("--world-size", type=_numbers, default=[2, 4], metavar="W,W", help="default 2,4")
    check.add_argument(
        "--dtypes", type=_names, default=["fp32", "bf16"], metavar="DTYPE,DTYPE", help="default fp32,bf16"
    )
    check.add_argument("--time", action="store_true", help="also time the reference at the public CPU shape")
    check.add_argument("--write", action="store_true", help="write the margins into calibration.json")
    check.set_defaults(run=_check)
    manifest = commands.add_parser("manifest", help="the catalogue for hosts without torch")
    manifest.add_argument(
        "--write", action="store_true", help="write manifest.json; else only say whether it is current"
    )
    manifest.set_defaults(run=_manifest)
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    return [int(name) for name in _names(text)]


def _list(options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps([entry.as_dict() for entry in registry.entries()], indent=1, ensure_ascii=False))
        return 0
    for entry in registry.entries():
        print(f"{entry.id:3} {entry.slug:44} {entry.type:12} {entry.difficulty}  {entry.title}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from problems.suite.manifest import describe

    print(json.dumps(describe(registry.get(options.id)), indent=1, ensure_ascii=False))
    return 0


def _reference(options: argparse.Namespace) -> int:
    from problems.suite.reference import reference_source

    print(reference_source(registry.find(options.id)), end="")
    return 0


def _check(options: argparse.Namespace) -> int:
    import torch

    from problems.suite import check
    from problems.suite.base import RUN_DTYPES
    from problems.suite.costs import dtype_name
    from problems.suite.ranks import Ranks

    known = {dtype_name(dtype): dtype for dtype in RUN_DTYPES}
    if strange := [name for name in options.dtypes if name not in known]:
        raise KeyError(f"no run dtype {strange[0]!r}; there are {', '.join(known)}")
    torch.set_num_threads(1)  # draws and oracles are small operations; a second thread would only spin
    started = time.monotonic()
    entries = [registry.find(name) for name in options.ids] or list(registry.entries())
    proofs = []
    with contextlib.ExitStack() as stack:
        groups = {W: stack.enter_context(Ranks(W)) for W in options.world_size}
        for entry in entries:
            dtypes = [known[name] for name in options.dtypes]
            proofs.append(check.prove(registry.get(entry.id), groups, dtypes=dtypes, timed=options.time))
            print(check.report(proofs[-1]), flush=True)
    failed = sum(bool(proof.faults) for proof in proofs)
    if options.write:
        check.write_table(proof for proof in proofs if not proof.faults)
    print(f"{len(proofs) - failed} passed, {failed} failed in {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def _manifest(options: argparse.Namespace) -> int:
    from problems.suite import manifest

    if options.write:
        manifest.write()
        print(f"{manifest.MANIFEST} written, {len(registry.entries())} problems")
        return 0
    stale = manifest.stale()
    print("\n".join(stale) if stale else f"{manifest.MANIFEST} is current")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
