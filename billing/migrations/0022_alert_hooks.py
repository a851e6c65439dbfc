"""Hooks that alerts are posted to, their deliveries, and indexes by which new alerts are found."""

import django.contrib.postgres.fields
import django.contrib.postgres.functions
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0021_budget_currencies'),
        ('clusters', '0014_object_stores'),
        ('tenancy', '0001_squashed_0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='AlertDelivery',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('uid', models.UUIDField(db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, unique=True)),
                ('kind', models.CharField(max_length=20)),
                ('subject', models.CharField(max_length=36)),
                ('tenant_path', models.CharField(db_collation='C', max_length=1100)),
                ('facts', models.JSONField()),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('given_up', 'Given Up')], db_default='pending', default='pending', max_length=10)),
                ('attempts', models.PositiveIntegerField(db_default=0, default=0)),
                ('last_status', models.PositiveSmallIntegerField(help_text='Null: no answer.', null=True)),
                ('last_error', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('next_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tried_since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='It is given up a day later.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('ended_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='AlertHook',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('server', models.CharField(help_text='Scheme, host and port.', max_length=300)),
                ('key_id', models.CharField(max_length=40)),
                ('sealed', models.BinaryField()),
                ('kinds', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=20), help_text='Sorted, distinct.', size=None)),
                ('form', models.CharField(choices=[('json', 'json'), ('chat', 'chat')], max_length=10)),
                ('created_by_id', models.UUIDField(null=True)),
                ('created_by_name', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('paused_at', models.DateTimeField(null=True)),
                ('pause', models.CharField(blank=True, choices=[('user', 'User'), ('gone', 'Gone')], default='', max_length=4)),
                ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('busy_until', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.AddIndex(
            model_name='budgetalert',
            index=models.Index(fields=['at'], name='budget_alerts_by_time'),
        ),
        migrations.AddIndex(
            model_name='budgetforecastalert',
            index=models.Index(fields=['at'], name='forecast_alerts_by_time'),
        ),
        migrations.AddIndex(
            model_name='invoice',
            index=models.Index(fields=['issued_at'], name='invoices_by_time'),
        ),
        migrations.AddIndex(
            model_name='spendanomaly',
            index=models.Index(fields=['found_at'], name='anomalies_by_time'),
        ),
        migrations.AddField(
            model_name='alerthook',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='alert_hooks', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='alertdelivery',
            name='hook',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='billing.alerthook'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='alert_hook_name_is_unique_in_its_tenant'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('name', ''), _negated=True), models.Q(('key_id', ''), _negated=True), models.Q(('server', ''), _negated=True), models.Q(('created_by_name', ''), _negated=True)), name='alert_hook_is_named'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.CheckConstraint(condition=models.Q(('kinds__contained_by', ['budget_spent', 'budget_forecast', 'anomaly', 'document']), ('kinds__len__gt', 0)), name='alert_hook_has_known_kinds'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.CheckConstraint(condition=models.Q(('form__in', ('json', 'chat'))), name='alert_hook_has_a_known_form'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('pause', ''), ('paused_at__isnull', True)), models.Q(('pause__in', ['user', 'gone']), ('paused_at__isnull', False)), _connector='OR'), name='alert_hook_says_why_it_is_paused'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['hook', 'next_at', 'id'], name='due_alert_deliveries'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(condition=models.Q(('ended_at__isnull', False)), fields=['ended_at'], name='ended_alert_deliveries'),
        ),
        migrations.AddConstraint(
            model_name='alertdelivery',
            constraint=models.UniqueConstraint(fields=('hook', 'kind', 'subject'), name='an_alert_is_delivered_once_per_hook'),
        ),
        migrations.AddConstraint(
            model_name='alertdelivery',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['budget_spent', 'budget_forecast', 'anomaly', 'document', 'test'])), name='alert_delivery_has_a_known_kind'),
        ),
        migrations.AddConstraint(
            model_name='alertdelivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state', 'pending')), models.Q(('attempts__gte', 1), ('ended_at__isnull', False), ('state__in', ['delivered', 'given_up'])), _connector='OR'), name='alert_delivery_ends_with_a_time'),
        ),
        migrations.AddConstraint(
            model_name='alertdelivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'delivered'), _negated=True), models.Q(('last_error', ''), ('last_status__gte', 200), ('last_status__isnull', False), ('last_status__lte', 299)), _connector='OR'), name='delivered_means_accepted'),
        ),
    ]
