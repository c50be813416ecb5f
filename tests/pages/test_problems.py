"""The page of a problem and its prompts, of the suite as this release holds it."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from problems import catalogue, hardware, prompts
from problems.models import ProblemVersion, Suite
from tests.factories import ProblemVersionFactory, SuiteFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    return catalogue.load(json.loads(settings.SUITE_MANIFEST.read_text())).suite


def get(address: str, **query: str) -> str:
    response = Client().get(address, query)
    assert response.status_code == 200, response.content.decode()[:500]
    return unescape(response.content.decode())


def words(html: str) -> str:
    """The text of a page, without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_a_problem_shows_all_that_decides_its_verdict(suite: Suite) -> None:
    page = words(get(reverse("problem", args=[13])))
    version = suite.problem_versions.get(problem__number=13)
    for heading in ("Signature", "Inputs and outputs", "Hazards", "Reference", "Bounds", "Trials", "Calibration",
                    "Tolerance", "Versions", "Cost model"):  # fmt: skip
        assert heading in page, heading
    assert version.digest[:12] in page
    assert "13_gemm_allreduce_BACKEND.py" in page
    assert version.details["hidden_property"] in page
    for hazard in version.details["hazards"]:
        assert hazard in page


def test_a_problem_with_a_dtype_of_its_own_says_so_and_has_one_bound_a_target(suite: Suite) -> None:
    page = words(get(reverse("problem", args=[66])))
    assert "Precision inputs are fp32 whatever the precision of the run" in page
    assert page.count("h100x8 fp32") == 1
    assert "h100x8 bf16" not in page
    assert "whatever the precision of the run" not in words(get(reverse("problem", args=[13])))


def test_bounds_follow_from_cost_model_and_peaks(suite: Suite) -> None:
    """8 H100, bf16: 2·1024·512·1024 flops at 989 TFLOP/s, and an all-reduce of 2 MiB that moves at least S bytes."""
    page = words(get(reverse("problem", args=[13])))
    row = re.search(r"h100x8 bf16 (\S+ µs) (\S+ µs) (\S+ µs) (\S+ µs) (\S+ µs) link", page)
    assert row is not None
    assert row[1] == "1.09 µs"
    assert row[3] == row[4] == "4.66 µs"
    assert row[5] == "5.91 µs"


def test_waived_rows_of_the_calibration_stand_with_their_reason(suite: Suite) -> None:
    waived = [v for v in suite.problem_versions.select_related("problem") if v.details.get("waivers")]
    assert waived
    for version in waived:
        page = words(get(reverse("problem", args=[version.problem.number])))
        for reason in version.details["waivers"].values():
            assert words(reason) in page


def test_every_problem_of_the_suite_has_a_page(suite: Suite) -> None:
    for version in suite.problem_versions.select_related("problem"):
        assert version.digest[:12] in get(reverse("problem", args=[version.problem.number]))


def test_an_entry_comes_back_from_the_database_as_it_was_in_the_manifest(suite: Suite) -> None:
    """So that the site's prompts are those of the command line, to the byte."""
    manifest = json.loads(settings.SUITE_MANIFEST.read_text())
    stored = {v.problem.number: catalogue.entry(v) for v in suite.problem_versions.select_related("problem")}
    assert stored == {entry["id"]: entry for entry in manifest["problems"]}


# Prompts --------------------------------------------------------------------------------------------------------------


def test_the_chosen_prompt_is_shown_in_full_and_as_a_file(suite: Suite) -> None:
    version = suite.problem_versions.select_related("problem").get(problem__number=13)
    wanted = prompts.build(catalogue.entry(version), "triton", "fp16", hardware.load()["h200x4"])
    choice = {"backend": "triton", "precision": "fp16", "hardware": "h200x4"}
    shown = re.search(r"<pre[^>]*>(.*)</pre>", get(reverse("problem-prompt", args=[13]), **choice), re.DOTALL)
    assert shown is not None
    assert shown[1] == wanted
    response = Client().get(reverse("problem-prompt-text", args=[13]), choice)
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response.content.decode() == wanted
    assert 'filename="13_gemm_allreduce_triton_fp16_h200x4.md"' in response["Content-Disposition"]


def test_the_page_offers_the_file_of_the_same_choice(suite: Suite) -> None:
    page = get(reverse("problem-prompt", args=[13]), backend="pytorch", precision="fp32", hardware="cpu-gloo")
    link = re.search(r'href="(/problems/13/prompt\.md\?[^"]*)"', page)
    assert link is not None
    assert get(link[1]).startswith("# GEMM, then all-reduce of the product: a PyTorch implementation for 4 ranks")


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"backend": "abacus"}, "abacus is not one of the available choices"),
        ({"hardware": "abacus\x00"}, "is not one of the available choices"),
        ({"backend": "cuda", "hardware": "cpu-gloo", "precision": "fp32"}, "needs GPUs"),
        ({"backend": "pytorch", "hardware": "cpu-gloo", "precision": "bf16"}, "runs fp32, not bf16"),
    ],
)
def test_a_choice_that_does_not_fit_is_explained(suite: Suite, choice: dict[str, str], sentence: str) -> None:
    page = get(reverse("problem-prompt", args=[13]), **choice)
    assert sentence in page
    assert "<pre" not in page
    response = Client().get(reverse("problem-prompt-text", args=[13]), choice)
    assert (response.status_code, sentence in response.content.decode()) == (400, True)


def test_the_whole_suite_comes_as_json_lines(suite: Suite) -> None:
    response = Client().get(reverse("suite-prompts"), {"backend": "pytorch", "precision": "fp32", "hardware": "h100x4"})
    lines = [json.loads(line) for line in response.content.decode().splitlines()]
    assert [line["id"] for line in lines] == [
        version.problem.number
        for version in suite.problem_versions.select_related("problem").order_by("problem__number")
        if not version.details["world_sizes"]["4"]
    ]
    assert set(lines[0]) == {"id", "slug", "backend", "precision", "hardware", "digest", "prompt"}
    assert {line["digest"] for line in lines} <= set(ProblemVersion.objects.values_list("digest", flat=True))
    assert Client().get(reverse("suite-prompts"), {"backend": "abacus"}).status_code == 400


def test_without_a_suite_there_are_no_prompts() -> None:
    assert Client().get(reverse("suite-prompts")).status_code == 404


def test_a_version_that_lacks_parts_still_has_page_and_prompt() -> None:
    """Versions of older manifests are shown with what they have."""
    suite = SuiteFactory(size=0, is_current=True)
    suite.problem_versions.add(ProblemVersionFactory(problem__number=7))
    assert "Bounds" not in get(reverse("problem", args=[7]))
    assert "Sum over all ranks." in get(reverse("problem-prompt-text", args=[7]))
