"""The part of a submission's page that says where time goes, and the traces behind it."""

from __future__ import annotations

from django.urls import reverse

from evaluator.contract import Profile, RankProfile, Report
from leaderboard.models import Artifact, ArtifactKind, Run, Submission
from tests.pages.site import Site, with_report, with_trace


def profiled(site: Site, note: str | None = None) -> Submission:
    """A submission with a census and a profile of two ranks; ``note`` on the trace of rank 1, None: nothing came."""
    submission = site.submission
    artifact = with_report(submission.verdicts.get())
    ranks = tuple(
        RankProfile(
            rank=rank,
            call_seconds=0.004,
            compute_seconds=0.001,
            communication_seconds=0.002,
            overlapped_seconds=0.0005,
            gap_seconds=0.001,
            events=70,
            dropped=3 * rank,
            trace_bytes=2_350,
            trace_sha256="ab" * 32,
        )
        for rank in range(2)
    )
    report = Report.model_validate_json(artifact.content).model_copy(
        update={"profile": Profile(reading="Half of the time is communication.", calls=5, ranks=ranks)}
    )
    Artifact.objects.filter(pk=artifact.pk).update(content=report.model_dump_json())
    with_trace(submission)
    if note is not None:
        Artifact.objects.create(
            attempt=submission.attempts.get(),
            kind=ArtifactKind.TRACE,
            name="rank 1",
            sha256="0" * 64,
            size=1,
            note=note,
        )
    return submission


def page(site: Site, who: str) -> str:
    address = reverse("submission", args=[site.submission.public_id])
    return site.client(who).get(address).content.decode()


def test_the_page_says_where_the_time_of_a_call_goes(site: Site) -> None:
    profiled(site)
    shown = page(site, "anonymous")
    assert "Where the time of a call goes" in shown and "c10d::allreduce_" in shown
    assert '<th scope="row">communication</th><td class="num">50' in shown
    assert "Half of the time is communication." in shown


def test_a_stored_trace_can_be_downloaded_and_one_on_its_way_says_so(site: Site) -> None:
    profiled(site)
    shown = page(site, "member")
    link = f"{reverse('submission-trace', args=[site.submission.public_id])}?on={site.evaluation.public_id}&amp;rank=0"
    assert f'href="{link}"' in shown and "On its way." in shown
    answer = site.client("member").get(link.replace("&amp;", "&"))
    assert answer["Content-Type"] == "application/gzip"
    assert answer["Content-Disposition"] == 'attachment; filename="problem_1_rank_0.trace.json.gz"'
    assert answer.content[:2] == b"\x1f\x8b"


def test_a_trace_that_the_disk_had_no_room_for_says_so(site: Site) -> None:
    profiled(site, note="Not stored yet: the disk of this site is full (2,350 bytes needed).")
    assert "the disk of this site is full" in page(site, "member")


def test_where_the_source_is_kept_traces_are_too(site: Site) -> None:
    profiled(site)
    Run.objects.update(source_visibility="private")
    shown = page(site, "stranger")
    assert "kept by the team" in shown and "submission-trace" not in shown and "/trace/" not in shown
    assert "/trace/" in page(site, "member")


def test_other_ranks_evaluations_and_lost_files_are_not_there(site: Site) -> None:
    profiled(site, note="waits")
    address = reverse("submission-trace", args=[site.submission.public_id])
    on = site.evaluation.public_id
    for query in ("", f"?on={on}", f"?on={on}&rank=1", f"?on={on}&rank=9", "?on=other&rank=0", f"?on={on}&rank=../0"):
        assert site.client("member").get(address + query).status_code == 404, query
    with_path = Artifact.objects.get(kind=ArtifactKind.TRACE, name="rank 0")
    Artifact.objects.filter(pk=with_path.pk).update(file="traces/gone")
    assert site.client("member").get(f"{address}?on={on}&rank=0").status_code == 404
    assert "no longer kept" in page(site, "member")
