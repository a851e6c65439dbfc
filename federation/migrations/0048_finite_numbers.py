"""Numeric columns refuse NaN and infinities, which PostgreSQL takes for greater than every number."""

import foundation.finite
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0017_finite_numbers'),
        ('federation', '0047_walks_end'),
        ('tenancy', '0001_squashed_0002_weight'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('unit_price')), name='attempt_numbers_are_finite'),
        ),
        migrations.AddConstraint(
            model_name='consolidation',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('gain_gpu_seconds'), foundation.finite.IsFinite('cost_gpu_seconds'), foundation.finite.IsFinite('lost_gpu_seconds'), foundation.finite.IsFinite('share')), name='consolidation_numbers_are_finite'),
        ),
        migrations.AddConstraint(
            model_name='estimaterecord',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('stated_seconds'), foundation.finite.IsFinite('taken_seconds')), name='estimate_record_numbers_are_finite'),
        ),
        migrations.AddConstraint(
            model_name='move',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('price_from'), foundation.finite.IsFinite('price_to'), foundation.finite.IsFinite('saving'), foundation.finite.IsFinite('price_of_move')), name='move_numbers_are_finite'),
        ),
        migrations.AddConstraint(
            model_name='policyweight',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('value')), name='policy_weight_numbers_are_finite'),
        ),
        migrations.AddConstraint(
            model_name='preemption',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('cost_gpu_seconds')), name='preemption_numbers_are_finite'),
        ),
        migrations.AddConstraint(
            model_name='preemptionvictim',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('cost_gpu_seconds')), name='preemption_victim_numbers_are_finite'),
        ),
        migrations.AddConstraint(
            model_name='progress',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('loss')), name='progress_numbers_are_finite'),
        ),
    ]
