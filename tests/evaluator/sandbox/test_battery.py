"""What a submission may not do: hostile programs inside a real sandbox, and what they meet.

The ordinary user's way of launching runs the same rows, see test_ordinary_user.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.sandbox import seccomp
from evaluator.sandbox.runtime import PROJECT_ROOT, current_runtime
from tests.evaluator.sandbox.attempts import Attempt, run_attempts
from tests.evaluator.sandbox.jobs import start

pytestmark = pytest.mark.sandbox

COLUMN = seccomp.MACHINES[platform.machine()].column
SITE_PACKAGES = current_runtime().packages[0]
JUDGE = os.getpid()


def opens(path: object, flags: str = "os.O_RDONLY") -> str:
    return f"return os.open({str(path)!r}, {flags})"


FILES = [
    Attempt("reads the judge's own files", opens(PROJECT_ROOT / "pyproject.toml"), ("ENOENT",)),
    Attempt("reads the password hashes", opens("/etc/shadow"), ("ENOENT",)),
    Attempt("reads who lives here", opens("/etc/hostname"), ("ENOENT",)),
    Attempt("lists home folders", "return os.listdir('/home')", ("ENOENT",)),
    Attempt("lists run-time sockets", "return os.listdir('/run')", ("ENOENT",)),
    Attempt("writes into /", opens("/x", "os.O_CREAT | os.O_WRONLY"), ("EROFS", "EACCES")),
    Attempt("writes into /usr", opens("/usr/x", "os.O_CREAT | os.O_WRONLY"), ("EROFS", "EACCES")),
    Attempt("writes into /dev", opens("/dev/x", "os.O_CREAT | os.O_WRONLY"), ("EROFS", "EACCES")),
    Attempt("adds a module", opens(SITE_PACKAGES / "x.py", "os.O_CREAT | os.O_WRONLY"), ("EROFS", "EACCES")),
    Attempt("changes its account", opens("/etc/passwd", "os.O_WRONLY"), ("EROFS", "EACCES")),
    Attempt("changes pid 1's program", opens("/sandbox/enter.py", "os.O_WRONLY"), ("EROFS", "EACCES")),
    Attempt("sets a core handler", opens("/proc/sys/kernel/core_pattern", "os.O_WRONLY"), ("EROFS", "EACCES")),
    Attempt("pulls the machine's plug", opens("/proc/sysrq-trigger", "os.O_WRONLY"), ("EROFS", "EACCES", "ENOENT")),
    Attempt("reads the machine's memory", opens("/dev/mem"), ("ENOENT",)),
    Attempt("reads the kernel's log", opens("/dev/kmsg"), ("ENOENT",)),
    Attempt("reads a disk", "os.mknod('/tmp/disk', 0o060600, os.makedev(8, 0))", ("EPERM",)),
    Attempt("sees cgroups", "return os.path.exists('/sys/fs/cgroup')", ("False",)),
    Attempt(
        "finds the judge's packages",
        """
found = []
for name in ("problems", "evaluator", "leaderboard", "pkbsite"):
    try:
        __import__(name)
        found.append(name)
    except ModuleNotFoundError:
        pass
return found""",
        ("[]",),
    ),
    Attempt(
        "runs a set-uid program",
        "return subprocess.run(['su', '-c', 'id'], capture_output=True).returncode == 0",
        ("False",),
    ),
]

LINKS = [
    Attempt("reads through a link", "os.symlink('/etc/shadow', '/tmp/a')\nreturn open('/tmp/a').read()", ("ENOENT",)),
    Attempt("reads through its root", opens("/proc/self/root/etc/shadow"), ("ENOENT",)),
    Attempt("reads through pid 1's root", opens("/proc/1/root/etc/shadow"), ("EACCES", "ENOENT")),
    Attempt("reads through pid 1's folder", "return os.listdir('/proc/1/cwd/')", ("EACCES",)),
    Attempt("reads beyond a mount", "return os.listdir('/tmp/../../../../home')", ("ENOENT",)),
    Attempt("links to what it may not read", "os.link('/etc/passwd', '/tmp/b')", ("EXDEV", "EPERM")),
    Attempt("puts a link in the place of a program", "os.symlink('/tmp/x', '/usr/bin/x')", ("EROFS", "EACCES")),
    Attempt("renames the runner's folder", "os.rename('/sandbox', '/sandbox2')", ("EROFS", "EACCES", "EBUSY")),
    Attempt("opens by handle", "call(libc.open_by_handle_at, 0, 0, 0)", ("EPERM",)),
]

IDENTITY = [
    Attempt("is root", "return os.getuid() == 0 or os.geteuid() == 0", ("False",)),
    Attempt("becomes root", "os.setuid(0)", ("EPERM", "EINVAL")),
    Attempt("becomes somebody else", "os.setuid(12345)", ("EPERM", "EINVAL")),
    Attempt("joins a group", "os.setgroups([0])", ("EPERM",)),
    Attempt(
        "has a capability",
        "return [l.split()[1].strip('0') for l in open('/proc/self/status') if l[:3] == 'Cap']",
        ("['', '', '', '', '']",),
    ),
    Attempt("gains privileges by exec", "return 'NoNewPrivs:\\t1' in open('/proc/self/status').read()", ("True",)),
    Attempt("knows the machine's name", "return socket.gethostname()", ("sandbox",)),
    Attempt("finds a secret in its environment", "return sorted(n for n in os.environ if 'SECRET' in n)", ("[]",)),
    Attempt("reads pid 1's environment", opens("/proc/1/environ"), ("EACCES",)),
    Attempt(
        "finds open descriptors",
        "return [fd for fd in range(5, 128) if os.path.exists(f'/proc/self/fd/{fd}')]",
        ("[]",),
    ),
]

PROCESSES = [
    Attempt("kills the judge", f"os.kill({JUDGE}, signal.SIGKILL)", ("ESRCH",)),
    Attempt(
        "sees processes of the host", "return max(int(p) for p in os.listdir('/proc') if p.isdigit()) < 1000", ("True",)
    ),
    Attempt(
        "kills pid 1",
        "os.kill(1, signal.SIGKILL); os.kill(1, signal.SIGINT); os.kill(1, 0); return 'alive'",
        ("alive",),
    ),
    Attempt("reads pid 1's memory", opens("/proc/1/mem"), ("EACCES",)),
    Attempt(
        "has its signals sent to the judge",
        f"import fcntl\nfcntl.fcntl(socket.socketpair()[0], fcntl.F_SETOWN, {JUDGE})",
        ("ESRCH", "EPERM"),
    ),
    Attempt("signals the judge's group", f"os.killpg({os.getpgid(JUDGE)}, signal.SIGTERM)", ("ESRCH",)),
    Attempt("waits for the judge", f"os.pidfd_open({JUDGE})", ("ESRCH",)),
    Attempt(
        "escapes its oom score", "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')", ("EACCES",)
    ),
    Attempt("gets priority", "os.nice(-5)", ("EPERM", "EACCES")),
    Attempt("gets real-time priority", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", ("EPERM",)),
    Attempt(
        "raises its limits",
        "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))",
        ("ValueError",),
    ),
]

NETWORK = [
    Attempt("calls the world", "socket.create_connection(('192.0.2.1', 80), 2)", ("ENETUNREACH",)),
    Attempt(
        "sends a datagram", "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))", ("ENETUNREACH",)
    ),
    Attempt("listens to the world", "socket.socket().bind(('192.0.2.1', 0))", ("EADDRNOTAVAIL",)),
    Attempt("has another interface", "return [name for _, name in socket.if_nameindex()]", ("['lo']",)),
    Attempt("reaches the hypervisor", "socket.socket(socket.AF_VSOCK)", ("EAFNOSUPPORT",)),
    Attempt("reads raw packets", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", ("EAFNOSUPPORT",)),
    Attempt("forges packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)", ("EPERM",)),
    Attempt("uses the kernel's crypto", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)", ("EAFNOSUPPORT",)),
]

# Flags and arguments that a table of numbers cannot express.
ARGUMENTS = [
    Attempt(
        "makes a user namespace",
        "call(libc.unshare, 0x10000000)",
        ("EPERM",),
    ),
    Attempt(
        "forks into a user namespace", f"syscall({seccomp.CLONE[COLUMN]}, 0x10000000 | 17, 0, 0, 0, 0)", ("EPERM",)
    ),
    Attempt("forks by clone3", f"syscall({seccomp.CLONE3[COLUMN]}, 0, 0)", ("ENOSYS",)),
    Attempt("wakes a stopped process", "os.kill(os.getpid(), signal.SIGCONT)", ("EPERM",)),
    Attempt("wakes all stopped processes", "os.kill(-1, signal.SIGCONT)", ("EPERM",)),
    Attempt("is woken by its parent's death", "call(libc.prctl, 1, signal.SIGCONT, 0, 0, 0)", ("EPERM",)),
    Attempt("is woken by a descriptor", "import fcntl\nfcntl.fcntl(0, 10, signal.SIGCONT)", ("EPERM",)),
    Attempt("turns off address randomisation", "call(libc.personality, 0x0040000)", ("EPERM",)),
    Attempt("types into a terminal", "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')", ("EPERM",)),
]

DENIED_CALLS = [
    Attempt(f"calls {name}", f"syscall({numbers[COLUMN]}, 0, 0, 0, 0, 0, 0)", ("EPERM",))
    for table in seccomp.DENIED["cpu"]
    for name, numbers in table.items()
    if numbers[COLUMN] is not None
]

FILL = """
written = 0
while True:
    with open(f"{folder}/part{written}", "wb") as file:
        file.write(bytes(2**20))
    written += 1
"""
SPACE = [
    Attempt("fills /dev/shm", f"folder = '/dev/shm'{FILL}", ("ENOSPC",)),
    Attempt("fills /tmp", f"folder = '/tmp'{FILL}", ("ENOSPC",)),
    Attempt("clears up", "subprocess.run('rm /tmp/part* /dev/shm/part*', shell=True, check=True)", ("None",)),
    Attempt(
        "writes a huge file",
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
os.posix_fallocate(os.open("/tmp/huge", os.O_CREAT | os.O_RDWR), 0, 9 * 2**20)""",
        ("EFBIG",),
    ),
    Attempt("writes a core file", "os.chdir('/tmp')\nos.abort()", ("signal 6",)),
    Attempt("left a core file", "return [n for n in os.listdir('/tmp') if 'core' in n]", ("[]",)),
    Attempt("hides memory in shared pages", "import mmap\nmmap.mmap(-1, 4096)", ("EPERM",)),
    Attempt("hides memory behind a device", "return os.open('/dev/zero', os.O_RDWR)", ("EACCES",)),
    Attempt("makes the device readable", "os.chmod('/dev/zero', 0o666)", ("EROFS", "EPERM")),
    Attempt("opens too many files", "return [os.open('/dev/null', 0) for _ in range(200)]", ("EMFILE",)),
]

# What honest kernels need must go on working, or closing everything would pass as well.
HONEST = [
    Attempt("writes to its home", "return open(os.path.expanduser('~/x'), 'w').write('x')", ("1",)),
    Attempt(
        "loads a library from /tmp",
        """
import _ctypes, shutil
shutil.copy(_ctypes.__file__, "/tmp/x.so")
return ctypes.CDLL("/tmp/x.so")._name""",
        ("/tmp/x.so",),
    ),
    Attempt(
        "talks over the loopback",
        """
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.send(b"x")
return server.accept()[0].recv(1)""",
        ("b'x'",),
    ),
    Attempt("starts threads", "t = threading.Thread(target=print)\nt.start()\nreturn t.join()", ("None",)),
    Attempt("starts programs", "return subprocess.run(['true']).returncode", ("0",)),
    Attempt(
        "shares memory",
        """
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=4096)
memory.unlink()
return memory.size""",
        ("4096",),
    ),
    Attempt("has private pages", "import mmap\nreturn len(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE))", ("4096",)),
    Attempt("knows its user", "import pwd\nreturn pwd.getpwuid(os.getuid()).pw_name", ("sandbox",)),
    Attempt("finds localhost", "return socket.gethostbyname('localhost')", ("127.0.0.1",)),
]

ATTEMPTS = [*FILES, *LINKS, *IDENTITY, *PROCESSES, *NETWORK, *ARGUMENTS, *DENIED_CALLS, *HONEST, *SPACE]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_KEY", "of the judge")
        patch.setenv("A_SECRET_OF_THE_JUDGE", "x")
        yield run_attempts(ATTEMPTS)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_outcome(attempt: Attempt, outcomes: dict[str, str]) -> None:
    assert outcomes[attempt.name] in attempt.expected


def test_sockets_of_the_host_cannot_be_reached(tmp_path: Path) -> None:
    """A server of the host on the same loopback address or in the abstract namespace is another one inside."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0pkb-test-abstract")
        abstract.listen()
        port = server.getsockname()[1]
        rows = [
            Attempt("tcp", f"socket.create_connection(('127.0.0.1', {port}), 2)", ("ECONNREFUSED",)),
            Attempt("abstract", "socket.socket(socket.AF_UNIX).connect('\\0pkb-test-abstract')", ("ECONNREFUSED",)),
        ]
        assert run_attempts(rows) == {"tcp": "ECONNREFUSED", "abstract": "ECONNREFUSED"}


NEIGHBOUR = """
import mmap, os, socket, sys, time
for folder in ("/tmp", "/dev/shm", os.path.expanduser("~")):
    with open(f"{folder}/neighbours-note", "w") as file:
        file.write("secret")
os.environ["NEIGHBOUR"] = "secret"
server = socket.create_server(("127.0.0.1", 29999))
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0neighbour")
abstract.listen()
print("ready", flush=True)
time.sleep(600)
"""


def test_one_job_finds_nothing_of_another() -> None:
    """Two jobs at once: neither files nor shared memory, processes, sockets of the neighbour are there."""
    find = """
search = ["find", "/tmp", "/dev/shm", os.path.expanduser("~"), "-name", "neighbours-note"]
return subprocess.run(search, capture_output=True).stdout"""
    processes = """
lines = [open(f"/proc/{p}/cmdline", "rb").read() for p in os.listdir("/proc") if p.isdigit()]
return [line for line in lines if b"neighbours-note" in line and b"json.load" not in line]"""
    rows = [
        Attempt("file", find, ("b''",)),
        Attempt("shared memory", "return os.listdir('/dev/shm')", ("[]",)),
        Attempt("process", processes, ("[]",)),
        Attempt("tcp", "socket.create_connection(('127.0.0.1', 29999), 2)", ("ECONNREFUSED",)),
        Attempt("abstract socket", "socket.socket(socket.AF_UNIX).connect('\\0neighbour')", ("ECONNREFUSED",)),
    ]
    with start(NEIGHBOUR) as neighbour:
        deadline = time.monotonic() + 60
        while neighbour.output() != "ready\n" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert neighbour.output() == "ready\n"
        found = run_attempts(rows)
        assert neighbour.wait(0) is None
    assert found == {row.name: row.expected[0] for row in rows}
