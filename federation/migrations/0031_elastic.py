"""The pods of each run of an elastic job are as many as its spec allows."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0030_withdrawn_moves"),
    ]

    operations = [
        rules("federation/elastic.sql"),
    ]
