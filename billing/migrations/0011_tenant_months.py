"""What a tenant's usage of a month adds up to is kept beside the ledger, by the statement that adds to it.

The overview asks for it every few seconds: what it reads must not grow with the month.
"""

import django.db.models.deletion
from django.db import migrations, models

ADDS_UP = """
SELECT m.tenant_id, date_trunc('month', lower(s.period) AT TIME ZONE 'UTC')::date AS month, s.currency, m.gpu_numerator,
       m.gpu_denominator, sum(s.cost) AS cost, sum(s.gpu_milliseconds) AS gpu_milliseconds
  FROM {segments} AS s JOIN billing_meter AS m ON m.id = s.meter_id GROUP BY 1, 2, 3, 4, 5
"""
COLUMNS = "(tenant_id, month, currency, gpu_numerator, gpu_denominator, cost, gpu_milliseconds)"
# Rows in one order, so that two statements do not deadlock. The trigger is there before the sums: it locks out writers.
KEEPS = f"""
CREATE FUNCTION billing_add_to_months() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_tenantmonth AS kept {COLUMNS}
    {ADDS_UP.format(segments="added")} ORDER BY 1, 2, 3, 4, 5
    ON CONFLICT (tenant_id, month, currency, gpu_numerator, gpu_denominator) DO UPDATE
       SET cost = kept.cost + excluded.cost, gpu_milliseconds = kept.gpu_milliseconds + excluded.gpu_milliseconds;
    RETURN NULL;
END $$;
CREATE TRIGGER billing_add_to_months AFTER INSERT ON billing_usagesegment
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION billing_add_to_months();
INSERT INTO billing_tenantmonth {COLUMNS} {ADDS_UP.format(segments="billing_usagesegment")};
"""  # noqa: S608 - constant text
UNDO = """
DROP TRIGGER billing_add_to_months ON billing_usagesegment;
DROP FUNCTION billing_add_to_months();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_costs_in_line"), ("tenancy", "0002_triggers")]

    operations = [
        migrations.CreateModel(
            name="TenantMonth",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("month", models.DateField(help_text="Its first day, UTC.")),
                ("currency", models.CharField(blank=True, help_text="Empty without a price.", max_length=3)),
                ("gpu_numerator", models.PositiveIntegerField()),
                ("gpu_denominator", models.PositiveIntegerField()),
                ("cost", models.DecimalField(decimal_places=12, max_digits=38)),
                ("gpu_milliseconds", models.PositiveBigIntegerField(help_text="In the meters' units.")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="months", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "month", "currency", "gpu_numerator", "gpu_denominator"),
                        name="one_sum_a_tenant_month_and_kind",
                    )
                ],
            },
        ),
        migrations.RunSQL(KEEPS, UNDO),
    ]
