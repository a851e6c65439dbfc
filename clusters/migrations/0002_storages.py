"""Storages: claims of a cluster that jobs may mount."""

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0001_initial'),
        ('tenancy', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Storage',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('kind', models.CharField(choices=[('claim', 'claim')], default='claim', max_length=10)),
                ('claim', models.CharField(max_length=253)),
                ('mode', models.CharField(choices=[('read_only', 'read_only'), ('read_write', 'read_write')], default='read_only', max_length=10)),
                ('prefix', models.CharField(blank=True, max_length=120)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='storages', to='clusters.cluster')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='storages', to='tenancy.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('cluster', 'name'), name='storage_name_is_unique_on_its_cluster'), models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z')), name='storage_name_is_a_dns_label'), models.CheckConstraint(condition=models.Q(('kind', 'claim')), name='storage_kind_is_known'), models.CheckConstraint(condition=models.Q(('claim__regex', '^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\\Z')), name='storage_names_a_claim'), models.CheckConstraint(condition=models.Q(('mode__in', ['read_only', 'read_write'])), name='storage_mode_is_known'), models.CheckConstraint(condition=models.Q(('prefix', ''), models.Q(('prefix__regex', '^[A-Za-z0-9._=+@,~/-]*(\\{tenant\\}[A-Za-z0-9._=+@,~/-]*)?\\Z'), models.Q(('prefix__regex', '(^|/)\\.{0,2}(/|$)'), _negated=True)), _connector='OR'), name='storage_prefix_leads_nowhere_else')],
            },
        ),
    ]
