"""What this host can evaluate and what is missing: ``python -m evaluator doctor``.

Nothing is concluded from version numbers where it can be tried: the examination starts a real sandbox and imports
torch in it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluator import gpus
from evaluator.contract import Isolation
from evaluator.judge.hardware import Hardware
from evaluator.sandbox import (
    ResourceLimits,
    Sandbox,
    SandboxSpec,
    SandboxUnavailable,
    find_bwrap,
    python_command,
    user_namespace_remedy,
)
from evaluator.targets import host_refusal, targets

NOBODY = 65534
TRIAL_SECONDS = 90.0
COMMAND_SECONDS = 20.0
STEADY_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}
CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")

IN_SANDBOX = """
import json, socket
found = {}
try:
    import torch, torch.distributed
    found["torch"] = torch.__version__
    found["gloo"] = torch.distributed.is_available() and torch.distributed.is_gloo_available()
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    probe.connect(("192.0.2.1", 9))
    found["network"] = True
except OSError:
    found["network"] = False
print("found " + json.dumps(found))
"""


IN_CUDA_SANDBOX = """
import json, time
began = time.perf_counter()
try:
    import torch
    names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    ones = torch.ones(64, 64, device="cuda")
    found = {"gpus": names, "product": float((ones @ ones).sum()) == 64.0**3}
except Exception as error:
    found = {"error": f"{type(error).__name__}: {error}"}
found["seconds"] = time.perf_counter() - began
print("found " + json.dumps(found))
"""


@dataclass(frozen=True)
class Finding:
    """One thing looked at. ``needed``: without it no foreign file is evaluated here; ``remedy``: what to do."""

    name: str
    ok: bool
    sentence: str
    remedy: str = ""
    needed: bool = True


@dataclass(frozen=True)
class Diagnosis:
    """All findings, the isolation of the trial sandbox (None: there was none), and the targets that can be served."""

    findings: tuple[Finding, ...]
    isolation: Isolation | None
    targets: tuple[str, ...]

    @property
    def can_evaluate(self) -> bool:
        """True if foreign files can be evaluated on this host for at least one target."""
        return bool(self.targets) and all(finding.ok for finding in self.findings if finding.needed)

    def as_text(self) -> str:
        """The page that people read."""
        lines = []
        for finding in self.findings:
            mark = "ok     " if finding.ok else "MISSING" if finding.needed else "without"
            lines.append(f"{mark}  {finding.name}: {finding.sentence}")
            if not finding.ok and finding.remedy:
                lines.append(f"         {finding.remedy}")
        lines.append("")
        if self.can_evaluate:
            lines.append(f"This host can evaluate for {', '.join(self.targets)}.")
        else:
            lines.append("This host cannot evaluate foreign files.")
        return "\n".join(lines)

    def as_json(self) -> str:
        """One JSON object with can_evaluate, targets, isolation and findings."""
        return json.dumps(
            {
                "can_evaluate": self.can_evaluate,
                "targets": self.targets,
                "isolation": self.isolation.model_dump(mode="json") if self.isolation else None,
                "findings": [asdict(f) | ({"remedy": ""} if f.ok else {}) for f in self.findings],
            }
        )


def examine() -> Diagnosis:
    """Look at this host; takes a few seconds, most of them for importing torch inside the trial sandbox."""
    findings = [_system(), _python()]
    isolation, tried = _try_sandbox()
    findings += tried
    if os.geteuid() == 0:
        findings.append(_ordinary_user())
    findings += [_cgroup(isolation), _memory(), _clock(), _compiler(), _gpus()]
    if isolation is not None and findings[-1].ok:
        findings.append(_try_cuda_sandbox())
    served = [name for name, target in targets().items() if not host_refusal(target)]
    return Diagnosis(findings=tuple(findings), isolation=isolation, targets=tuple(served))


def _system() -> Finding:
    ok = platform.system() == "Linux"
    sentence = f"{platform.system()} {platform.release()} on {platform.machine()}, {len(os.sched_getaffinity(0))} CPUs."
    return Finding("system", ok, sentence, "Evaluations need Linux.")


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    return Finding("python", ok, f"Python {platform.python_version()}.", "Python 3.11 or newer is needed.")


def _try_sandbox() -> tuple[Isolation | None, list[Finding]]:
    """Start a sandbox as a job would be started, and look around in it."""
    bwrap = find_bwrap()
    spec = SandboxSpec(argv=python_command("-c", IN_SANDBOX), limits=ResourceLimits())
    try:
        with Sandbox.start(spec) as sandbox:
            isolation = sandbox.isolation
            status = sandbox.wait(TRIAL_SECONDS)
            output = sandbox.output()
    except SandboxUnavailable as failure:
        return None, [Finding("sandbox", False, failure.sentence, failure.remedy)]
    way = "started as root, run under a uid of its own" if isolation.mode == "bwrap-root" else "in a user namespace"
    sandbox_finding = Finding("sandbox", True, f"{bwrap} works: {way} (uid {isolation.uid}), system calls filtered.")
    told = [line.removeprefix("found ") for line in output.splitlines() if line.startswith("found ")]
    if status != 0 or not told:
        ended = f"did not end within {TRIAL_SECONDS:g} s" if status is None else f"ended with status {status}"
        sentence = f"Python in the sandbox {ended}: {' '.join(output.split())[-300:]}"
        return isolation, [sandbox_finding, Finding("runtime", False, sentence, "Reinstall Python and torch.")]
    return isolation, [sandbox_finding, *_inside(json.loads(told[0]))]


def _try_cuda_sandbox() -> Finding:
    """Multiply on the GPUs from inside a sandbox, as a job for them would."""
    name = "gpus in the sandbox"
    remedy = "Look whether the device nodes of the driver are there and may be opened by any user."
    try:
        every = Hardware("cuda", tuple(gpu.index for gpu in gpus.read()), "nccl", mirrored=True)
        spec = SandboxSpec(
            argv=python_command("-c", IN_CUDA_SANDBOX),
            environment=every.environment,
            limits=every.limits,
            devices=every.nodes,
            seccomp_profile="cuda",
        )
        with Sandbox.start(spec) as sandbox:
            status = sandbox.wait(TRIAL_SECONDS)
            output = sandbox.output()
    except (SandboxUnavailable, gpus.GpusUnavailable) as failure:
        return Finding(name, False, str(failure), remedy, needed=False)
    told = [json.loads(line.removeprefix("found ")) for line in output.splitlines() if line.startswith("found ")]
    if status != 0 or not told or not told[0].get("product"):
        why = told[0].get("error", "A product of ones was wrong.") if told else " ".join(output.split())[-300:]
        return Finding(name, False, f"They cannot be used there: {why}", remedy, needed=False)
    sentence = f"{', '.join(told[0]['gpus'])}: a product is right, {told[0]['seconds']:.1f} s after the start of torch."
    return Finding(name, True, sentence, needed=False)


def _inside(found: dict[str, str | bool]) -> list[Finding]:
    network = Finding(
        "network",
        not found["network"],
        "The network can be reached from the sandbox."
        if found["network"]
        else "It cannot be reached from the sandbox.",
        "Foreign files are not run on this host.",
    )
    if "error" in found:
        remedy = "Install torch into the environment that runs the judge: pip install torch."
        return [network, Finding("torch", False, f"It cannot be imported in the sandbox: {found['error']}.", remedy)]
    gloo = bool(found["gloo"])
    sentence = f"{found['torch']}{'' if gloo else ', without the gloo backend'}."
    return [network, Finding("torch", gloo, sentence, "Install a torch that is built with torch.distributed and gloo.")]


def _ordinary_user() -> Finding:
    """As root: would an ordinary user be able to make a sandbox? Tried as nobody."""
    bwrap = find_bwrap()
    name = "ordinary user"
    if bwrap is None:
        return Finding(name, False, "bubblewrap is not there to try.", needed=False)
    command = [str(bwrap), "--unshare-all", "--unshare-user", "--disable-userns", "--uid", str(NOBODY)]
    command += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/lib", "/lib"]
    command += ["--ro-bind-try", "/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/env", "true"]
    try:
        done = subprocess.run(
            command,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except PermissionError:
        sentence = f"Not tried: {bwrap} lies where only its owner can read it."
        return Finding(
            name, False, sentence, "Install the environment in a folder that everybody can read.", needed=False
        )
    except subprocess.TimeoutExpired:
        return Finding(name, False, f"The trial did not end within {COMMAND_SECONDS:g} s.", needed=False)
    if done.returncode != 0:
        sentence = f"It could not make a sandbox here: {' '.join(done.stderr.split())[-200:]}."
        return Finding(name, False, sentence, user_namespace_remedy(), needed=False)
    return Finding(name, True, "It can make sandboxes here as well: the worker need not run as root.", needed=False)


def _cgroup(isolation: Isolation | None) -> Finding:
    if isolation is None:
        return Finding("control group", False, "Not tried, as there is no sandbox.", needed=False)
    if not isolation.cgroup:
        sentence = (
            "None can be made: limits are kept by rlimits and the judge's own watch, jobs are stopped by signals."
        )
        return Finding("control group", False, sentence, "Give the worker a writable cgroup v2 subtree.", needed=False)
    by_kernel = [name for name in ("memory", "processes") if "cgroup" in isolation.limits[name]]
    sentence = f"Jobs are stopped by it; the kernel enforces through it: {', '.join(by_kernel) or 'nothing else'}."
    return Finding("control group", True, sentence, needed=False)


def _memory() -> Finding:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    limit = ResourceLimits().memory_bytes / 1024**3
    ok = total >= limit
    sentence = f"{total:.1f} GiB; one job may use {limit:g} GiB."
    return Finding("memory", ok, sentence, "A job at its limit would exhaust this machine.", needed=False)


def _clock() -> Finding:
    if not CLOCK.is_file():
        return Finding("clock", False, "The kernel does not say which clock it uses.", needed=False)
    source = CLOCK.read_text(encoding="ascii").strip()
    sentence = f"The kernel's clock is {source}."
    return Finding("clock", source in STEADY_CLOCKS, sentence, "Timings are coarse with this clock.", needed=False)


def _compiler() -> Finding:
    found = {name: shutil.which(name) for name in ("c++", "ninja", "nvcc")}
    missing = [name for name, path in found.items() if path is None]
    if not missing:
        return Finding("compiler", True, "c++, ninja and nvcc are there.", needed=False)
    sentence = f"No {' and no '.join(missing)}: files with CUDA sources cannot be built here."
    return Finding("compiler", False, sentence, "CPU targets do not need them.", needed=False)


def _gpus() -> Finding:
    try:
        found = gpus.nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader")
    except gpus.GpusUnavailable as reason:
        return Finding("gpus", False, str(reason), "CPU targets do not need them.", needed=False)
    return Finding("gpus", True, f"{'; '.join(found.strip().splitlines())}.", needed=False)
