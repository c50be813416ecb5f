"""Command line of the evaluator: ``python -m evaluator evaluate | judge | schema | doctor | peaks``."""

from __future__ import annotations

import argparse
import base64
import json
import logging
import sys
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from evaluator.contract import MAX_MESSAGE_BYTES, Backend, Code, Job, Limits, Precision, Progress, Report, TracePart

EXIT_OK, EXIT_FAULT, EXIT_USAGE, EXIT_HARNESS = 0, 1, 2, 3


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; the exit status is 0 for correct, 1 for a fault of the file, 2 for wrong use, 3 for ours."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    options = _parser().parse_args(arguments)
    command: int = options.command(options)
    return command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evaluator", description="Judges kernels of the suite.")
    commands = parser.add_subparsers(required=True)
    evaluate = commands.add_parser("evaluate", help="judge one file on this machine")
    evaluate.add_argument("file", type=Path, help="Python file that defines solution(…)")
    evaluate.add_argument("--problem", required=True, help="id, slug or older public name of the problem")
    evaluate.add_argument("--target", default="cpu-gloo", help="default: cpu-gloo")
    evaluate.add_argument("--world-size", type=int, help="number of ranks; default: the target's")
    evaluate.add_argument("--precision", type=Precision, choices=list(Precision), default=Precision.FP32)
    evaluate.add_argument("--backend", type=Backend, choices=list(Backend), default=Backend.PYTORCH)
    evaluate.add_argument("--call-seconds", type=float, help=f"budget of one call; default: {Limits().call:g}")
    evaluate.add_argument("--no-timing", action="store_true", help="stop after the correctness trials")
    evaluate.add_argument(
        "--profile", type=Path, metavar="DIR", help="also write a profiler's trace of each rank there"
    )
    evaluate.add_argument("--json", action="store_true", help="print the report as one JSON object")
    evaluate.set_defaults(command=_evaluate)
    judge = commands.add_parser("judge", help="read a Job as JSON from stdin, write progress and report as JSON lines")
    judge.set_defaults(command=_judge)
    schema = commands.add_parser("schema", help="print the JSON schema of a report, as --json writes it")
    schema.set_defaults(command=_schema)
    doctor = commands.add_parser("doctor", help="say what this host can evaluate and what is missing")
    doctor.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    doctor.set_defaults(command=_doctor)
    peaks = commands.add_parser("peaks", help="measure the rates of this host: matrix products, memory, links")
    peaks.add_argument("--target", default="cpu-gloo", help="default: cpu-gloo")
    peaks.add_argument("--write", type=Path, metavar="FILE", help="also put them into FILE, see PKB_MEASURED_PEAKS")
    peaks.add_argument("--json", action="store_true", help="print them as one JSON object")
    peaks.set_defaults(command=_peaks)
    return parser


def _evaluate(options: argparse.Namespace) -> int:
    from evaluator import targets
    from evaluator.judge import evaluate
    from evaluator.page import page, show_progress
    from problems.suite import registry

    try:
        target = targets.target(options.target)
        entry = registry.find(options.problem)
        source = options.file.read_text(encoding="utf-8")
        limits = Limits() if options.call_seconds is None else Limits(call=options.call_seconds)
        job = Job(
            attempt_id=uuid4(),
            problem_id=entry.id,
            target=target.name,
            world_size=options.world_size or target.world_size,
            precision=options.precision,
            backend=options.backend,
            file_name=options.file.name,
            source=source,
            profile=options.profile is not None,
            limits=limits,
        )
    except KeyError as error:
        return _usage(str(error.args[0]))
    except UnicodeDecodeError:
        return _usage(f"{options.file} is not UTF-8 text.")
    except OSError as error:
        return _usage(f"{options.file} cannot be read: {error.strerror}.")
    except ValidationError as error:
        return _usage("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()))
    kept = TraceFiles(options.profile)
    report = evaluate(job, progress=show_progress, with_timing=not options.no_timing, traces=kept.take)
    kept.announce()
    print(report.model_dump_json() if options.json else page(report))
    return _status(report)


class TraceFiles:
    """Puts traces together from their parts, as files that Perfetto (ui.perfetto.dev) and Chrome open."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.written: list[Path] = []

    def take(self, part: TracePart) -> None:
        """Appends a part: the judge gives them in order."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"rank_{part.rank}.trace.json.gz"
        with path.open("wb" if part.part == 0 else "ab") as file:
            file.write(base64.b64decode(part.data))
        self.written += [path] if part.part == 0 else []

    def announce(self) -> None:
        """One line on standard error, where files were asked for."""
        if self.folder is not None:
            print(f"  {len(self.written)} traces in {self.folder}", file=sys.stderr)


def _usage(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return EXIT_USAGE


def _status(report: Report) -> int:
    if report.code is Code.HARNESS_FAILURE:
        return EXIT_HARNESS
    return EXIT_OK if report.code is Code.CORRECT else EXIT_FAULT


def _judge(options: argparse.Namespace) -> int:
    """The worker's way: a Job on stdin, JSON lines on stdout, the last one the Report."""
    from evaluator.judge import evaluate

    text = sys.stdin.buffer.read(MAX_MESSAGE_BYTES + 1)
    try:
        job = Job.model_validate_json(text)
    except ValidationError as error:
        return _usage(
            f"The job on standard input is not valid: {error.error_count()} errors, {error.errors()[0]['msg']}."
        )

    def tell(message: Progress | TracePart | Report) -> None:
        print(message.model_dump_json(), flush=True)

    tell(evaluate(job, progress=tell, traces=tell))
    return EXIT_OK


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(Report.model_json_schema(), indent=2, ensure_ascii=False))
    return EXIT_OK


def _doctor(options: argparse.Namespace) -> int:
    """The exit status is 0 if this host can evaluate foreign files, else 3."""
    from evaluator import doctor

    diagnosis = doctor.examine()
    print(diagnosis.as_json() if options.json else diagnosis.as_text())
    return EXIT_OK if diagnosis.can_evaluate else EXIT_HARNESS


def _peaks(options: argparse.Namespace) -> int:
    """The exit status is 0 if the rates were measured, 2 for an unknown target, 3 where they cannot be."""
    from evaluator import peaks, targets

    try:
        measured = peaks.measure(targets.target(options.target))
        if options.write:
            peaks.write(measured, options.write)
    except KeyError as error:
        return _usage(str(error.args[0]))
    except (OSError, ValueError) as error:
        return _usage(f"{options.write} cannot be written: {error}")
    except peaks.CannotMeasure as error:
        print(error, file=sys.stderr)
        return EXIT_HARNESS
    print(json.dumps({measured.target.name: measured.entry()}) if options.json else measured.as_text())
    return EXIT_OK
