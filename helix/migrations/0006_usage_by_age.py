"""Usage rows past their days are found by their age."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("helix", "0005_newest_sessions_first")]

    operations = [
        migrations.AddIndex(model_name="usagerecord", index=models.Index(fields=["timestamp"], name="helix_usage_age")),
    ]
