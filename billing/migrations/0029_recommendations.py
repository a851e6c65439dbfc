"""Recommendations with what people decided, and required labels; `sql/recommendations.sql` has what their tables refuse."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.finite
import foundation.ids
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0027_finite_numbers'),
        ('tenancy', '0001_squashed_0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='Recommendation',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant_path', models.CharField(db_collation='C', max_length=1100)),
                ('kind', models.CharField(max_length=20)),
                ('subject', models.CharField(db_collation='C', max_length=400)),
                ('currency', models.CharField(max_length=3)),
                ('low', models.DecimalField(decimal_places=6, help_text='Of 30 days.', max_digits=38)),
                ('high', models.DecimalField(decimal_places=6, max_digits=38)),
                ('confidence', models.DecimalField(decimal_places=4, max_digits=5)),
                ('evidence', models.JSONField()),
                ('found_on', models.DateField(help_text='The first day (UTC) on which it was found.')),
                ('last_found_on', models.DateField()),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('dismissed', 'Dismissed'), ('done', 'Done'), ('expired', 'Expired')], default='open', max_length=10)),
                ('reason', models.CharField(blank=True, default='', max_length=500)),
                ('until', models.DateField(help_text='Of a dismissed one: from this day on, it may be opened again.', null=True)),
                ('decided_high', models.DecimalField(decimal_places=6, help_text='`high` when it was accepted or dismissed.', max_digits=38, null=True)),
                ('decided_by_id', models.UUIDField(null=True)),
                ('decided_by_name', models.CharField(blank=True, default='', max_length=254)),
                ('decided_at', models.DateTimeField(null=True)),
                ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='recommendations', to='tenancy.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['organisation', 'state'], name='recommendations_by_state')],
                'constraints': [models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('low'), foundation.finite.IsFinite('high'), foundation.finite.IsFinite('confidence'), foundation.finite.IsFinite('decided_high')), name='recommendation_numbers_are_finite'), models.UniqueConstraint(fields=('tenant', 'kind', 'subject', 'currency'), name='one_recommendation_a_subject'), models.CheckConstraint(condition=models.Q(('kind__in', ['idle', 'late_failures', 'smaller', 'cheaper', 'spot', 'unused_commitment', 'missing_label'])), name='recommendation_kind_is_known'), models.CheckConstraint(condition=models.Q(('confidence__gte', 0), ('confidence__lte', 1), ('high__gte', models.F('low')), ('low__gte', 0), ('currency__regex', '^[A-Z]{3}$'), ('last_found_on__gte', models.F('found_on'))), name='recommendation_is_a_range'), models.CheckConstraint(condition=models.Q(models.Q(('decided_high', None), ('reason', ''), ('state', 'open'), ('until', None)), models.Q(('decided_high', None), ('state', 'expired'), ('until', None)), models.Q(('decided_at__isnull', False), ('decided_high__isnull', False), ('state__in', ['accepted', 'done']), ('until', None), models.Q(('decided_by_name', ''), _negated=True)), models.Q(('decided_at__isnull', False), ('decided_high__isnull', False), ('state', 'dismissed'), ('until__isnull', False), models.Q(('decided_by_name', ''), _negated=True), models.Q(('reason', ''), _negated=True)), _connector='OR'), name='recommendation_says_who_and_why')],
            },
        ),
        migrations.CreateModel(
            name='RequiredLabels',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('effective_from', models.DateField()),
                ('keys', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=317), size=None)),
                ('made_by_id', models.UUIDField(null=True)),
                ('made_by_name', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('keys__len__lte', 10)), name='required_labels_are_few')],
            },
        ),
        rules("billing/recommendations.sql"),
    ]
