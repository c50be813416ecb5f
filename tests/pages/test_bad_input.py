"""Bad input through the real upload form: each trouble has its own sentence, and nothing is half stored."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from html import unescape
from urllib.parse import quote

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.urls import reverse

from leaderboard.models import Run, SourceFile, Submission, Upload
from tests.pages.site import Site

GOOD = b"def solution(x):\n    return x\n"


def zipped(entries: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def many_entries() -> bytes:
    return zipped({f"{number}.py": b"" for number in range(10_000)})


# What is sent -> a part of the sentence that the preview must show. Each sentence stands in one row only.
TROUBLES: dict[str, tuple[str, bytes, str]] = {
    "a name that says nothing": ("kernel_final_v2.py", GOOD, "No problem of this suite is called kernel_final_v2"),
    "no such problem": ("999.py", GOOD, "No problem of this suite is number 999"),
    "not UTF-8": ("1.py", "# é\ndef solution(): ...".encode("latin-1"), "Not encoded as UTF-8: byte 0xe9 in line 1"),
    "empty": ("1.py", b"", "The file is empty."),
    "over 1 MB": ("1.py", b"#" * 1_000_001, "Larger than 1.0 MB, the limit for one file"),
    "not Python": ("1.txt", GOOD, "its name does not end in .py"),
    "binary": ("1.py", b"\x7fELF\0\0", "line 1 holds a zero byte"),
    "syntax error": ("1.py", b"def solution(x):\n    return (x\n", "Not valid Python in line 2"),
    "no solution": ("1.py", b"x = 1\n", "defines no `solution`"),
    "10,000 entries": ("all.zip", many_entries(), "The zip holds 10,000 files, the limit"),
    "a path out of the zip": ("all.zip", zipped({"../1.py": GOOD}), "Its path leads out of the zip"),
    "ratio 1000:1": ("all.zip", zipped({"1.py": b"\n" * 900_000}), "times its size; no source does"),
    "nested zip": ("all.zip", zipped({"in.zip": zipped({"1.py": GOOD})}), "A zip inside a zip is not opened"),
    "a zip cut off": ("all.zip", zipped({"1.py": GOOD})[:60], "The zip is cut off or damaged"),
}


@pytest.fixture
def client(site: Site) -> Client:
    return site.client("owner")


@pytest.fixture(autouse=True)
def untouched(site: Site) -> Iterator[None]:
    """Whatever a test sends, no run, submission or source comes of it."""
    before = (Run.objects.count(), Submission.objects.count(), SourceFile.objects.count())
    yield
    assert before == (Run.objects.count(), Submission.objects.count(), SourceFile.objects.count())


def send(client: Client, *files: tuple[str, bytes], **fields: str) -> HttpResponse:
    data = {"files": [SimpleUploadedFile(name, content) for name, content in files], "end": "1", **fields}
    return client.post(reverse("submit"), data, follow=True)


def text(response: HttpResponse) -> str:
    return unescape(response.content.decode())


@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_trouble_has_its_own_sentence(client: Client, trouble: str) -> None:
    name, content, sentence = TROUBLES[trouble]
    page = text(send(client, (name, content)))
    assert sentence in page
    assert "Refused." in page
    assert "No file can be judged" in page
    assert sum(other in page for _, _, other in TROUBLES.values()) == 1, "two troubles share a sentence"
    assert Upload.objects.get().sources.count() == 0


def test_two_files_for_one_problem_name_each_other(client: Client) -> None:
    page = text(send(client, ("1.py", GOOD), ("1_problem_1_cuda.py", GOOD + b"# other\n")))
    assert page.count("Two files answer problem 1") == 2


def test_an_upload_cut_off_half_way_stores_nothing(client: Client) -> None:
    """The form's last field did not arrive, so neither did the end of what stands before it."""
    body = encode_multipart(BOUNDARY, {"files": SimpleUploadedFile("1.py", GOOD * 200), "end": "1"})
    response = client.generic("POST", reverse("submit"), body[: len(body) // 2], content_type=MULTIPART_CONTENT)
    assert response.status_code == 422
    assert "was cut off on its way, so nothing was stored" in text(response)
    assert not Upload.objects.exists()


def test_nothing_sent(client: Client) -> None:
    response = send(client)
    assert response.status_code == 422
    assert "Nothing was sent: choose files" in text(response)


def test_pasted_text_without_a_name(client: Client) -> None:
    page = text(send(client, pasted=GOOD.decode()))
    assert "Give the pasted file a name" in page
    assert "return x" in page, "what was pasted must not be lost"


def test_more_files_than_a_form_may_have(client: Client) -> None:
    response = send(client, *[(f"{number}.py", b"") for number in range(2_001)])
    assert response.status_code == 400
    assert "More than 2,000 files came in one upload" in text(response)


def test_paths_that_do_not_fit_the_files_are_not_believed(client: Client) -> None:
    page = text(send(client, ("empty.py", b""), paths='["1.py", "2.py"]'))
    assert "empty.py" in page


def test_what_is_shown_of_a_name_is_escaped(client: Client) -> None:
    response = send(client, ("x.py", b""), paths='["<script>alert(1)</script>.py"]')
    assert b"<script>alert(1)" not in response.content
    assert b"&lt;script&gt;" in response.content


NASTY = ("\0", "9" * 5_000, "-1", "ü", "' OR 1=1 --", "../../etc/passwd", "\ud800".encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
def test_nonsense_in_an_address_is_answered_not_stumbled_over(site: Site, value: str | bytes) -> None:
    """Every parameter of every public page, and every part of an address."""
    client = site.client("owner")
    text = quote(value)
    parameters = "target suite track backend precision provenance weights type sort page on rank version difficulty"
    query = "&".join(f"{name}={text}" for name in parameters.split())
    pages = [reverse(name) for name in ("leaderboard", "models", "problems", "status")]
    pages += [reverse("run", args=[site.run.public_id]), reverse("submission", args=[site.submission.public_id])]
    pages += [reverse("run-live", args=[site.run.public_id]), reverse("problem", args=[1])]
    for page in pages:
        assert client.get(f"{page}?{query}").status_code in (200, 286), page
    for place in ("runs", "models", "submissions", "teams", "problems", "invitations", "submit", "docs"):
        assert client.get(f"/{place}/{text}/").status_code == 404, place
    cancel = client.post(reverse("run-cancel", args=[site.run.public_id]), {"evaluation": value})
    assert cancel.status_code == 404
