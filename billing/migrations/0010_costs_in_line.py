"""The same cost, written so that the planner takes it into the query that asks: a proof of the ledger asks it of every segment.

PostgreSQL inlines an SQL function only if it is one expression without a FROM. A call that is not inlined costs more than the
arithmetic in it.
"""

from django.db import migrations

COST = """
CREATE OR REPLACE FUNCTION billing_cost(
    by_core boolean, gpu_units bigint, cpu_millicores bigint, memory_mib bigint, metered_from timestamptz,
    unit_price numeric, cpu_price numeric, memory_price numeric, valid tstzrange, period tstzrange
) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT billing_reading(
               CASE WHEN by_core THEN 0 ELSE unit_price END, gpu_units,
               CASE WHEN by_core THEN unit_price ELSE cpu_price END, cpu_millicores, memory_price, memory_mib,
               billing_base(metered_from, valid, period), upper(period))
         - billing_reading(
               CASE WHEN by_core THEN 0 ELSE unit_price END, gpu_units,
               CASE WHEN by_core THEN unit_price ELSE cpu_price END, cpu_millicores, memory_price, memory_mib,
               billing_base(metered_from, valid, period), lower(period))
$$;
"""
BASE = """
-- The latest cut at or before a segment: where its meter or its price began, or midnight.
CREATE FUNCTION billing_base(metered_from timestamptz, valid tstzrange, period tstzrange) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT greatest(metered_from, lower(valid),
                    date_trunc('day', lower(period) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0009_redone_work")]

    operations = [
        migrations.RunSQL(BASE, migrations.RunSQL.noop),
        migrations.RunSQL(COST, migrations.RunSQL.noop),
    ]
