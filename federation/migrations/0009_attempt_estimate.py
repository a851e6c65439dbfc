"""What a run was expected to take and cost when it was placed, and how fast its work goes there."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0007_datasets'),
        ('federation', '0008_placement_policies'),
    ]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='estimate',
            field=models.JSONField(db_default={}, default=dict, help_text='What it was expected to take and cost when it was placed, part by part (`placement.answers.estimates`).'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='pace',
            field=models.FloatField(db_default=1, default=1, help_text='How long an hour of its work takes there.'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('estimate__contains', {})), name='attempt_estimate_is_an_object'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('pace__gt', 0), ('pace__lte', 1)), name='work_takes_its_time_or_less'),
        ),
    ]
