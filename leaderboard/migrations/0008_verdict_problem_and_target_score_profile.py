import django.db.models.deletion
from django.db import migrations, models


def fill(apps, schema_editor):
    """Verdicts given before have the problem of their submission and the target of their evaluation."""
    verdict = apps.get_model("leaderboard", "Verdict")
    submissions = apps.get_model("leaderboard", "Submission").objects.filter(pk=models.OuterRef("submission_id"))
    evaluations = apps.get_model("leaderboard", "Evaluation").objects.filter(pk=models.OuterRef("evaluation_id"))
    verdict.objects.filter(problem=None).update(
        problem_id=models.Subquery(submissions.values("problem_id")[:1]),
        target_id=models.Subquery(evaluations.values("target_id")[:1]),
    )


class Migration(migrations.Migration):
    dependencies = [
        ("problems", "0001_initial"),
        ("leaderboard", "0007_profiles_and_census"),
    ]

    operations = [
        migrations.AddField(
            model_name="evaluationscore",
            name="profile",
            field=models.JSONField(
                default=dict, help_text="Mechanisms, failures and steps, as leaderboard.profiles says."
            ),
        ),
        migrations.AddField(
            model_name="verdict",
            name="failed_phase",
            field=models.CharField(blank=True, help_text="The phase that failed; empty if none did.", max_length=20),
        ),
        migrations.AddField(
            model_name="verdict",
            name="serial_bound_seconds",
            field=models.FloatField(blank=True, help_text="Bound without any overlap.", null=True),
        ),
        migrations.AddField(
            model_name="verdict",
            name="problem",
            field=models.ForeignKey(
                help_text="Of the submission; kept here for the best on a problem.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="verdicts",
                to="problems.problem",
            ),
        ),
        migrations.AddField(
            model_name="verdict",
            name="target",
            field=models.ForeignKey(
                help_text="Of the evaluation; kept here for the best on a problem.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="verdicts",
                to="leaderboard.target",
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
