"""Secrets of tenants, sealed."""

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0002_storages'),
        ('tenancy', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='TenantSecret',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('kind', models.CharField(choices=[('value', 'value'), ('registry', 'registry')], max_length=10)),
                ('registry', models.CharField(blank=True, help_text='Whose images it pulls; only for that kind.', max_length=253)),
                ('version', models.PositiveIntegerField()),
                ('key_id', models.CharField(max_length=40)),
                ('sealed', models.BinaryField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='secrets', to='tenancy.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'name'), name='secret_name_is_unique_in_its_tenant'), models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z')), name='secret_name_is_a_dns_label'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'value'), ('registry', '')), models.Q(('kind', 'registry'), ('registry__regex', '^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?(:[0-9]{1,5})?\\Z')), _connector='OR'), name='secret_names_a_registry_exactly_if_it_is_for_one'), models.CheckConstraint(condition=models.Q(('version__gte', 1)), name='secret_versions_begin_at_one'), models.CheckConstraint(condition=models.Q(('key_id', ''), _negated=True), name='secret_names_its_key')],
            },
        ),
    ]
