"""Opens what was sent: plain files, and zips with every trick that zips allow. Writes nothing to any disk."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO

from evaluator.contract import MAX_SOURCE_BYTES
from leaderboard.intake.findings import Finding, ignored, refused, size_text

MAX_ENTRIES = 2_000  # files of one upload, those inside zips counted; 87 problems with 20 samples are 1,740
MAX_UNPACKED = 100_000_000  # bytes of all files together
MAX_ZIP = 50_000_000  # bytes of a zip as sent
MAX_LISTING = 1_000 * MAX_ENTRIES  # bytes of a zip's list of files: 46 and the path for each
MAX_RATIO = 200  # unpacked : packed of one entry; Python source packs to a fifth, hardly ever to a twentieth
RATIO_FREE = 100_000  # bytes below which the ratio does not matter

SYSTEM_NAMES = {"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", "__pycache__", ".git"}
_ZIP_END, _END_BYTES, _ZIP64_LOCATOR = b"PK\x05\x06", 22, b"PK\x06\x07"
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
# What the zipfile module raises on hostile bytes (an unknown method: NotImplementedError, which is a RuntimeError).
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
)


@dataclass(frozen=True)
class Sent:
    """One file as the browser sent it: path with folders if there were any, and an open binary file."""

    path: str
    file: IO[bytes]


@dataclass
class Budget:
    """What is left of the limits of the whole upload."""

    entries: int = MAX_ENTRIES
    unpacked: int = MAX_UNPACKED


@dataclass(frozen=True)
class Entry:
    """A file that could be read, not yet looked into."""

    path: str
    data: bytes


@dataclass
class Contents:
    """Everything that was sent: files to look into, and findings on what could not be opened."""

    entries: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def read(files: Iterable[Sent]) -> Contents:
    """Open all files of an upload. Never raises for what they hold: each trouble is a finding."""
    contents, budget = Contents(), Budget()
    for sent in files:
        for item in _read_file(sent, budget):
            (contents.entries if isinstance(item, Entry) else contents.findings).append(item)  # type: ignore[arg-type]
    return contents


def _read_file(sent: Sent, budget: Budget) -> Iterator[Entry | Finding]:
    if is_system_file(sent.path):
        yield ignored(sent.path, "system_file", "Left out: written by the operating system or by Python, not by you.")
        return
    head = sent.file.read(4)
    if head in _ZIP_MAGIC or sent.path.lower().endswith(".zip"):
        yield from _read_zip(sent, budget)
        return
    budget.entries -= 1
    if budget.entries < 0:
        yield refused(sent.path, "too_many_files", f"More than {MAX_ENTRIES} files in one upload; send the rest apart.")
        return
    data = head + sent.file.read(MAX_SOURCE_BYTES + 1 - len(head))
    yield _within_limits(sent.path, data, budget)


def _within_limits(path: str, data: bytes, budget: Budget) -> Entry | Finding:
    """``data`` holds one byte more than allowed if the file is longer than that."""
    if len(data) > MAX_SOURCE_BYTES:
        limit = size_text(MAX_SOURCE_BYTES)
        return refused(path, "too_large", f"Larger than {limit}, the limit for one file; remove embedded data.")
    budget.unpacked -= len(data)
    if budget.unpacked < 0:
        limit = size_text(MAX_UNPACKED)
        return refused(path, "upload_too_large", f"The files together exceed {limit}; send the rest in another upload.")
    return Entry(path, data)


def _read_zip(sent: Sent, budget: Budget) -> Iterator[Entry | Finding]:
    size = sent.file.seek(0, 2)
    if size > MAX_ZIP:
        sentence = f"The zip has {size_text(size)}, the limit is {size_text(MAX_ZIP)}; send it in parts."
        yield refused(sent.path, "zip_too_large", sentence)
        return
    if _listing_bytes(sent.file, size) > MAX_LISTING:
        sentence = f"The zip lists far more than {MAX_ENTRIES:,} files, the limit of an upload. None was read."
        yield refused(sent.path, "too_many_files", sentence)
        return
    sent.file.seek(0)
    try:
        archive = zipfile.ZipFile(sent.file)
    except _ZIP_ERRORS:
        yield refused(sent.path, "zip_broken", _broken_sentence(sent, size))
        return
    with archive:
        infos = [info for info in archive.infolist() if not info.filename.endswith("/")]
        if len(infos) > budget.entries:
            sentence = f"The zip holds {len(infos):,} files, the limit of an upload is {MAX_ENTRIES:,}. None was read."
            yield refused(sent.path, "too_many_files", sentence)
            return
        if not infos:
            yield refused(sent.path, "zip_empty", "The zip holds no files.")
        budget.entries -= len(infos)
        seen: set[str] = set()
        for info in infos:
            yield _read_member(sent.path, archive, info, budget, seen)


def _listing_bytes(file: IO[bytes], size: int) -> int:
    """Size that a zip states for its list of files, which ``zipfile`` reads into memory whole; 0 if it has none.

    Looks where ``zipfile`` looks. The 64-bit format, which no upload of legal size needs, counts as endless.
    """
    tail_size = min(size, _END_BYTES + 65_535)
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    start = tail_size - _END_BYTES
    if not (start >= 0 and tail.startswith(_ZIP_END, start) and tail.endswith(b"\0\0")):
        start = tail.rfind(_ZIP_END)
    if start < 0 or start + _END_BYTES > tail_size:
        return 0
    if tail[max(0, start - 20) : start].startswith(_ZIP64_LOCATOR):
        return MAX_LISTING + 1
    return int.from_bytes(tail[start + 12 : start + 16], "little")


def _broken_sentence(sent: Sent, size: int) -> str:
    sent.file.seek(0)
    if size and sent.file.read(4) in _ZIP_MAGIC:
        return f"The zip is cut off or damaged: {size_text(size)} arrived, its list of files is missing. Send it again."
    return "Its name ends in .zip, but it is no zip file. Pack it again, or send the files themselves."


def _read_member(
    zip_path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: Budget, seen: set[str]
) -> Entry | Finding:
    path = f"{zip_path}/{info.filename}"
    if is_system_file(info.filename):
        return ignored(path, "system_file", "Left out: written by the operating system or by Python, not by you.")
    refusal = _refuse_member(path, info, seen)
    if refusal is not None:
        return refusal
    try:
        with archive.open(info) as member:
            # Never trust the size that the header states: read one byte more than is allowed and look.
            data = member.read(MAX_SOURCE_BYTES + 1)
    except _ZIP_ERRORS as error:
        return refused(path, "zip_member_broken", f"Damaged inside the zip ({type(error).__name__}). Pack it again.")
    if data[:4] in _ZIP_MAGIC:
        return refused(path, "nested_zip", "A zip inside a zip is not opened; put its files into the outer one.")
    return _within_limits(info.filename, data, budget)


def _refuse_member(path: str, info: zipfile.ZipInfo, seen: set[str]) -> Finding | None:
    """A finding for an entry that must not even be unpacked."""
    name, mode = info.filename, info.external_attr >> 16
    pure = PurePosixPath(name.replace("\\", "/"))
    if not name:
        return refused(path, "unsafe_path", "It has no name inside the zip. Pack the folder again.")
    if pure.is_absolute() or ".." in pure.parts or (pure.parts and ":" in pure.parts[0]):
        return refused(path, "unsafe_path", "Its path leads out of the zip (.. or absolute). Pack the folder again.")
    if stat.S_ISLNK(mode):
        return refused(path, "symlink", "A symbolic link, not a file; pack the file itself.")
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return refused(path, "special_file", "Neither file nor folder but a device, pipe or socket.")
    if info.flag_bits & 0x1:
        return refused(path, "encrypted", "Encrypted; pack it without a password.")
    if name in seen:
        return refused(path, "zip_name_twice", "The zip holds this path twice; only the first was read.")
    seen.add(name)
    if name.lower().endswith(".zip"):
        return refused(path, "nested_zip", "A zip inside a zip is not opened; put its files into the outer one.")
    if info.file_size > RATIO_FREE and info.file_size > MAX_RATIO * max(1, info.compress_size):
        ratio = info.file_size // max(1, info.compress_size)
        sentence = f"Unpacks to {ratio:,} times its size; no source does. At most {MAX_RATIO} times is unpacked."
        return refused(path, "zip_ratio", sentence)
    return None


def is_system_file(path: str) -> bool:
    """Whether operating systems, Python or git put the file there."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    return any(part in SYSTEM_NAMES or part.startswith("._") for part in parts)
