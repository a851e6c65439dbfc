"""Hooks that mail alerts: their addresses, and the links that confirm these; `sql/mail.sql` has what these tables refuse."""

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.lookups
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0024_utilisation'),
        ('tenancy', '0001_squashed_0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='AddressConfirmation',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('organisation_id', models.UUIDField()),
                ('address', models.CharField(max_length=254)),
                ('digest', models.BinaryField(max_length=32, unique=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.RemoveConstraint(
            model_name='alertdelivery',
            name='alert_delivery_has_a_known_kind',
        ),
        migrations.RemoveConstraint(
            model_name='alerthook',
            name='alert_hook_is_named',
        ),
        migrations.RemoveConstraint(
            model_name='alerthook',
            name='alert_hook_has_a_known_form',
        ),
        migrations.AddField(
            model_name='alerthook',
            name='address',
            field=models.CharField(blank=True, db_default='', default='', help_text='For mail.', max_length=254),
        ),
        migrations.AddField(
            model_name='alerthook',
            name='confirmed_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AlterField(
            model_name='alerthook',
            name='form',
            field=models.CharField(choices=[('json', 'json'), ('chat', 'chat'), ('mail', 'mail')], max_length=10),
        ),
        migrations.AlterField(
            model_name='alerthook',
            name='server',
            field=models.CharField(blank=True, help_text='Scheme, host and port; empty for mail.', max_length=300),
        ),
        migrations.AddConstraint(
            model_name='alertdelivery',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['budget_spent', 'budget_forecast', 'anomaly', 'document', 'test', 'confirmation'])), name='alert_delivery_has_a_known_kind'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('name', ''), _negated=True), models.Q(('key_id', ''), _negated=True), models.Q(('created_by_name', ''), _negated=True)), name='alert_hook_is_named'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('form', 'mail'), ('server', ''), models.Q(('address', ''), _negated=True)), models.Q(models.Q(('form', 'mail'), _negated=True), models.Q(('server', ''), _negated=True), ('address', ''), ('confirmed_at__isnull', True)), _connector='OR'), name='alert_hook_has_a_server_or_an_address'),
        ),
        migrations.AddConstraint(
            model_name='alerthook',
            constraint=models.CheckConstraint(condition=models.Q(('form__in', ('json', 'chat', 'mail'))), name='alert_hook_has_a_known_form'),
        ),
        migrations.AddField(
            model_name='addressconfirmation',
            name='hook',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='confirmations', to='billing.alerthook'),
        ),
        migrations.AddIndex(
            model_name='addressconfirmation',
            index=models.Index(fields=['organisation_id', 'created_at'], name='confirmations_of_a_day'),
        ),
        migrations.AddConstraint(
            model_name='addressconfirmation',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.Exact(django.db.models.functions.text.Length('digest'), 32), name='address_confirmation_digest_is_sha256'),
        ),
        migrations.AddConstraint(
            model_name='addressconfirmation',
            constraint=models.CheckConstraint(condition=models.Q(('used_at__isnull', True), ('ended_at__isnull', True), _connector='OR'), name='address_confirmation_ends_one_way'),
        ),
        migrations.AddConstraint(
            model_name='addressconfirmation',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True), ('used_at__isnull', True)), fields=('hook',), name='one_live_confirmation_per_hook'),
        ),
        rules("billing/mail.sql"),
    ]
