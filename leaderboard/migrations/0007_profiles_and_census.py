from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leaderboard", "0006_canaries_tallies_worker_capabilities"),
    ]

    operations = [
        migrations.AddField(
            model_name="verdict",
            name="census",
            field=models.JSONField(
                blank=True, help_text="Shares of time by origin, as evaluator.contract.Census.", null=True
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="record_profile",
            field=models.BooleanField(default=False, help_text="Also record a profiler's trace of every rank."),
        ),
        migrations.AddField(
            model_name="artifact",
            name="content_type",
            field=models.CharField(default="application/json", max_length=100),
        ),
        migrations.AddField(
            model_name="artifact",
            name="file",
            field=models.CharField(blank=True, help_text="Path below the data folder.", max_length=200),
        ),
        migrations.AddField(
            model_name="artifact",
            name="note",
            field=models.CharField(blank=True, max_length=300),
        ),
        migrations.AlterField(
            model_name="artifact",
            name="content",
            field=models.TextField(blank=True),
        ),
    ]
