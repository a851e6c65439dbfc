"""What many nodes offer is computed once for each change of them."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("clusters", "0011_staging")]

    operations = [rules("clusters/history.sql", "FUNCTION clusters_follow")]
