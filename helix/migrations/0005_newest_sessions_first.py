"""The newest conversations of an owner are read from an index, without sorting all that the owner has (R-567)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("helix", "0004_session_error_texts")]

    operations = [
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                "owner", models.F("created_at").desc(), models.F("id").desc(), name="helix_session_newest"
            ),
        ),
    ]
