"""Audit entries tell the client's address, refusals of strangers are counted by the minute, tries to sign in are reserved."""

from django.db import migrations, models

PARTS = """
        entry.id::text, to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), entry.actor_id::text,
        entry.actor_name, entry.token_id::text, entry.action, entry.outcome, entry.object_kind, entry.object_id,
        entry.tenant_id::text, entry.detail::text, entry.request_id
"""
TEXT = """
CREATE OR REPLACE FUNCTION tenancy_audit_text(entry tenancy_auditentry) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(octet_length(coalesce(part, '')) || ':' || coalesce(part, ''), ',' ORDER BY number)
    FROM unnest(ARRAY[%s]%s) WITH ORDINALITY AS parts(part, number)
$$;
"""
# The source is a part only where there is one: entries from before there were any keep the text that was hashed.
WITH_SOURCE = TEXT % (PARTS, " || CASE WHEN entry.source IS NULL THEN '{}'::text[] ELSE ARRAY[entry.source::text] END")
WITHOUT_SOURCE = TEXT % (PARTS, "")


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0005_people_rules")]

    operations = [
        migrations.AddField(
            "auditentry",
            "source",
            models.GenericIPAddressField(null=True, help_text="The client's address; null for the system's own work."),
        ),
        migrations.RunSQL(WITH_SOURCE, WITHOUT_SOURCE),
        migrations.CreateModel(
            "RefusalCount",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute_at", models.DateTimeField()),
                ("action", models.CharField(max_length=60)),
                ("source", models.GenericIPAddressField(null=True)),
                ("count", models.PositiveIntegerField()),
                ("last_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["minute_at", "action", "source"],
                        name="one_count_per_minute_and_source",
                        nulls_distinct=False,
                    )
                ]
            },
        ),
        migrations.CreateModel(
            "SignInTry",
            fields=[
                ("key", models.CharField(max_length=160, primary_key=True, serialize=False)),
                ("tries", models.PositiveIntegerField()),
                ("until", models.DateTimeField()),
            ],
            options={"indexes": [models.Index(fields=["until"], name="sign_in_tries_by_end")]},
        ),
    ]
