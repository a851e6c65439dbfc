"""The rules for each new object and pod read by index, whatever a session knew of the tables when it planned them.

A session plans a rule's statement once and keeps the plan until PostgreSQL analyses the table. One that planned for tables
analysed when they were almost empty read them from end to end for each row: twice the time for 4,000 pods of one transaction,
and more with each pod until the next analysis.
"""

from django.db import migrations

RULES = ("federation_need_cluster", "federation_object_is_its_clusters", "federation_pod_fits", "federation_promise")


class Migration(migrations.Migration):
    dependencies = [("federation", "0010_proven_images")]

    operations = [
        migrations.RunSQL(f"ALTER FUNCTION {rule}() SET enable_seqscan = off", f"ALTER FUNCTION {rule}() RESET enable_seqscan")
        for rule in RULES
    ]
