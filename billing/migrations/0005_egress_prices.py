"""What moving data between regions costs, by date."""

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


STANDS = """
CREATE FUNCTION billing_guard_egress_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.route_id, NEW.price_per_gib, NEW.currency, NEW.created_at, lower(NEW.valid))
            IS DISTINCT FROM (OLD.id, OLD.route_id, OLD.price_per_gib, OLD.currency, OLD.created_at, lower(OLD.valid))
        OR coalesce(upper(NEW.valid), 'infinity') > coalesce(upper(OLD.valid), 'infinity') THEN
        RAISE EXCEPTION 'an egress price stands as it was written; only its end may come nearer'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'egress_price_stands';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER billing_guard_egress_price BEFORE UPDATE ON billing_egressprice
    FOR EACH ROW EXECUTE FUNCTION billing_guard_egress_price();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0004_interruptions'),
        ('tenancy', '0002_triggers'),
    ]

    operations = [
        migrations.CreateModel(
            name='EgressRoute',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('from_region', models.CharField(help_text='`*` stands for anything.', max_length=63)),
                ('to_region', models.CharField(help_text='Likewise.', max_length=63)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='egress_routes', to='tenancy.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='EgressPrice',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('price_per_gib', models.DecimalField(decimal_places=6, max_digits=18)),
                ('currency', models.CharField(default='USD', max_length=3)),
                ('valid', django.contrib.postgres.fields.ranges.DateTimeRangeField(help_text='Half-open, UTC.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('route', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prices', to='billing.egressroute')),
            ],
        ),
        migrations.AddConstraint(
            model_name='egressroute',
            constraint=models.UniqueConstraint(fields=('owner', 'from_region', 'to_region'), name='one_egress_route_per_pair'),
        ),
        migrations.AddConstraint(
            model_name='egressroute',
            constraint=models.CheckConstraint(condition=models.Q(('from_region__regex', '^[A-Za-z0-9*]([A-Za-z0-9*._-]{0,62})\\Z'), ('to_region__regex', '^[A-Za-z0-9*]([A-Za-z0-9*._-]{0,62})\\Z')), name='egress_regions_are_plain'),
        ),
        migrations.AddConstraint(
            model_name='egressprice',
            constraint=models.CheckConstraint(condition=models.Q(('price_per_gib__gte', 0), ('price_per_gib__lte', 1000000)), name='egress_price_is_within_bounds'),
        ),
        migrations.AddConstraint(
            model_name='egressprice',
            constraint=models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$')), name='egress_currency_is_three_letters'),
        ),
        migrations.AddConstraint(
            model_name='egressprice',
            constraint=models.CheckConstraint(condition=models.Q(('valid__isempty', False), ('valid__lower_inc', True), ('valid__lower_inf', False), ('valid__upper_inc', False)), name='egress_price_period_is_half_open'),
        ),
        migrations.AddConstraint(
            model_name='egressprice',
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(expressions=[(models.Func(models.F('route_id'), models.F('route_id'), models.Value('[]'), function='int8range', output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField()), '&&'), ('valid', '&&')], name='one_egress_price_at_a_time'),
        ),
        migrations.RunSQL(STANDS),
    ]
