from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("federation", "0013_preemption"),
    ]

    operations = [
        migrations.AddField(
            model_name="podrun",
            name="init_step",
            field=models.PositiveSmallIntegerField(
                help_text="The number of the init step that failed, from 1; the end is then that of this step.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="podrun",
            name="initializing_at",
            field=models.DateTimeField(
                help_text="When it was last seen to begin or leave an init step; null if it never was.", null=True
            ),
        ),
        migrations.AddConstraint(
            model_name="podrun",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("init_step__isnull", True),
                    models.Q(("finished_at__isnull", False), ("init_step__range", (1, 8))),
                    _connector="OR",
                ),
                name="an_init_step_that_failed_has_ended",
            ),
        ),
    ]
