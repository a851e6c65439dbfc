"""Sessions: their use, the tickets that open them, and the index by which unused ones are found."""

import datetime
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import foundation.ids
from foundation.rules import rules
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0033_object_stores"),
        ("tenancy", "0001_squashed_0002_weight"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SessionTicket",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("digest", models.BinaryField(help_text="SHA-256 of the secret.", unique=True)),
                ("epoch", models.CharField(help_text="The hash that the user's sessions carried then.", max_length=64)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(null=True)),
                (
                    "access_digest",
                    models.BinaryField(
                        help_text="SHA-256 of the secret in the browser's cookie.", null=True, unique=True
                    ),
                ),
                ("access_until", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="SessionUse",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="session_use",
                        serialize=False,
                        to="federation.attempt",
                    ),
                ),
                (
                    "last_used_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Of the last request, to the minute; or when it was first known to run, or its cluster last silent.",
                    ),
                ),
                (
                    "stopped_at",
                    models.DateTimeField(help_text="When the gateway stopped it because it was not used.", null=True),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("finished_at", None), ("spec__has_key", "session")),
                fields=["id"],
                name="live_sessions",
            ),
        ),
        migrations.AddField(
            model_name="sessionticket",
            name="attempt",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="session_tickets", to="federation.attempt"
            ),
        ),
        migrations.AddField(
            model_name="sessionticket",
            name="token",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="tenancy.apitoken",
            ),
        ),
        migrations.AddField(
            model_name="sessionticket",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="sessionticket",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("expires_at__gt", models.F("created_at")),
                    (
                        "expires_at__lte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("created_at"), "+", models.Value(datetime.timedelta(seconds=60))
                        ),
                    ),
                ),
                name="a_ticket_is_short",
            ),
        ),
        migrations.AddConstraint(
            model_name="sessionticket",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("access_digest", None), ("access_until", None), ("used_at", None)),
                    models.Q(
                        ("access_digest__isnull", False),
                        ("access_until__gt", models.F("used_at")),
                        ("access_until__isnull", False),
                        (
                            "access_until__lte",
                            django.db.models.expressions.CombinedExpression(
                                models.F("used_at"), "+", models.Value(datetime.timedelta(seconds=3600))
                            ),
                        ),
                        ("used_at__gte", models.F("created_at")),
                        ("used_at__isnull", False),
                        ("used_at__lt", models.F("expires_at")),
                    ),
                    _connector="OR",
                ),
                name="a_ticket_is_used_in_time",
            ),
        ),
        rules("federation/sessions.sql"),
    ]
