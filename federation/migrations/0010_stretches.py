from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0009_attempt_estimate"),
    ]

    operations = [
        migrations.AddField(
            model_name="remoteobject",
            name="stretches",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Nodes and domains in the order of its pods' indices (`engine.objects.ranks`); empty = in any order.",
            ),
        ),
    ]
