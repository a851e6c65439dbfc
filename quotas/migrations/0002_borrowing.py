from pathlib import Path

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("quotas", "0001_initial"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="quotalimit",
            name="quota_surplus_cap_is_what_is_held",
        ),
        migrations.AddField(
            model_name="quotalimit",
            name="borrowing_limit",
            field=models.BigIntegerField(db_default=0, default=0, null=True),
        ),
        migrations.AddField(
            model_name="quotalimit",
            name="lending_limit",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="quotalimit",
            name="parent",
            field=models.ForeignKey(
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="children",
                to="quotas.quotalimit",
            ),
        ),
        migrations.AddConstraint(
            model_name="quotalimit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "cap",
                        django.db.models.functions.comparison.Greatest(
                            django.db.models.expressions.CombinedExpression(
                                models.F("nominal"),
                                "+",
                                models.Case(
                                    models.When(parent__isnull=True, then=models.Value(0)),
                                    default=django.db.models.functions.comparison.Coalesce(
                                        models.F("borrowing_limit"), models.Value(1000000000000000)
                                    ),
                                    output_field=models.BigIntegerField(),
                                ),
                            ),
                            models.F("held"),
                        ),
                    )
                ),
                name="quota_surplus_cap_is_what_is_held",
            ),
        ),
        migrations.AddConstraint(
            model_name="quotalimit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("borrowing_limit__isnull", True),
                    models.Q(("borrowing_limit__gte", 0), ("borrowing_limit__lte", 1000000000000000)),
                    _connector="OR",
                ),
                name="quota_borrowing_limit_is_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="quotalimit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("lending_limit__isnull", True),
                    models.Q(("lending_limit__gte", 0), ("lending_limit__lte", 1000000000000000)),
                    _connector="OR",
                ),
                name="quota_lending_limit_is_in_range",
            ),
        ),
        migrations.AddField(
            model_name="quotalimit",
            name="claim",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(
                        removed_at__isnull=True,
                        then=django.db.models.functions.comparison.Greatest(
                            models.F("held"),
                            django.db.models.expressions.CombinedExpression(
                                models.F("nominal"), "-", models.F("lending_limit")
                            ),
                        ),
                    ),
                    default=models.F("held"),
                ),
                output_field=models.BigIntegerField(),
            ),
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0002_borrowing.sql").read_text(encoding="utf-8"),
            "DROP TRIGGER quotas_limits_follow_tenant ON tenancy_tenant",
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0002_upgrade.sql").read_text(encoding="utf-8"), migrations.RunSQL.noop
        ),
    ]
