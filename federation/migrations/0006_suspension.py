"""Users suspend jobs: the state, and since when a user has kept a job from running."""

import federation.engine.lifecycle
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0005_resources'),
        ('tenancy', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='job',
            name='job_state_is_known',
        ),
        migrations.AddField(
            model_name='job',
            name='suspend_requested_at',
            field=models.DateTimeField(help_text='When a user suspended it, until it is resumed.', null=True),
        ),
        migrations.AlterField(
            model_name='job',
            name='state',
            field=models.CharField(choices=[('queued', 'queued'), ('dispatching', 'dispatching'), ('running', 'running'), ('suspended', 'suspended'), ('cancelling', 'cancelling'), ('succeeded', 'succeeded'), ('failed', 'failed'), ('cancelled', 'cancelled')], default=federation.engine.lifecycle.JobState['QUEUED'], max_length=12),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('state', 'suspended')), fields=['tenant'], name='suspended_jobs_of_tenant'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'dispatching', 'running', 'suspended', 'cancelling', 'succeeded', 'failed', 'cancelled'])), name='job_state_is_known'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'queued'), _negated=True), ('suspend_requested_at__isnull', True), _connector='OR'), name='no_suspended_job_is_queued'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'suspended'), _negated=True), ('suspend_requested_at__isnull', False), _connector='OR'), name='only_users_suspend_jobs'),
        ),
    ]
