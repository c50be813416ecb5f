# In a transaction of its own: PostgreSQL neither alters nor indexes a table on which changed rows wait for their checks.
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leaderboard", "0008_verdict_problem_and_target_score_profile"),
    ]

    operations = [
        migrations.AlterField(
            model_name="verdict",
            name="problem",
            field=models.ForeignKey(
                help_text="Of the submission; kept here for the best on a problem.",
                on_delete=django.db.models.deletion.PROTECT,
                related_name="verdicts",
                to="problems.problem",
            ),
        ),
        migrations.AlterField(
            model_name="verdict",
            name="target",
            field=models.ForeignKey(
                help_text="Of the evaluation; kept here for the best on a problem.",
                on_delete=django.db.models.deletion.PROTECT,
                related_name="verdicts",
                to="leaderboard.target",
            ),
        ),
        migrations.AddIndex(
            model_name="verdict",
            index=models.Index(
                condition=models.Q(("code", "correct"), ("standing", "counted")),
                fields=["problem", "target", "-speedup"],
                name="verdict_best",
            ),
        ),
        migrations.AddIndex(
            model_name="verdict",
            index=models.Index(
                condition=models.Q(("code", "correct"), ("standing", "counted")),
                fields=["problem", "target", "-created_at"],
                name="verdict_newest",
            ),
        ),
    ]
