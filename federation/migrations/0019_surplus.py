"""Jobs are stopped because limits were lowered below what is held (`0019_surplus.sql`)."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

HERE = Path(__file__)
SQL = HERE.with_name("0019_surplus.sql").read_text(encoding="utf-8")
_, MARK, BEFORE = HERE.with_name("0016_reclaim.sql").read_text(encoding="utf-8").partition("-- Only jobs of")
UNDO = f"{MARK}{BEFORE}\nDROP FUNCTION federation_is_beyond;"
OUTCOMES = ["placed", "expired", "withdrawn"]


def ends_with(outcomes):
    return models.CheckConstraint(
        condition=Q(
            Q(("ended_at__isnull", True), ("outcome", "")),
            Q(("ended_at__isnull", False), ("outcome__in", outcomes)),
            _connector="OR",
        ),
        name="a_preemption_ends_with_an_outcome",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0018_moves"),
        ("quotas", "0006_surplus"),
    ]

    operations = [
        migrations.AddField(
            model_name="preemption",
            name="limits",
            field=models.JSONField(
                db_default=[],
                default=list,
                help_text="The lowered limits for which jobs are stopped, if not for another job.",
            ),
        ),
        migrations.AlterField(
            model_name="preemption",
            name="beneficiary",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="preemptions",
                to="federation.job",
            ),
        ),
        migrations.AlterField(
            model_name="preemption",
            name="cluster",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="clusters.cluster",
            ),
        ),
        migrations.AlterField(
            model_name="preemption",
            name="outcome",
            field=models.CharField(
                blank=True,
                choices=[(one, one) for one in [*OUTCOMES, "reduced"]],
                default="",
                max_length=10,
            ),
        ),
        migrations.RemoveConstraint(model_name="preemption", name="a_preemption_ends_with_an_outcome"),
        migrations.AddConstraint(model_name="preemption", constraint=ends_with([*OUTCOMES, "reduced"])),
        migrations.AddConstraint(
            model_name="preemption",
            constraint=models.CheckConstraint(
                condition=Q(
                    Q(
                        ("beneficiary__isnull", False),
                        ("cluster__isnull", False),
                        ("limits", []),
                        Q(("outcome", "reduced"), _negated=True),
                    ),
                    Q(
                        ("beneficiary__isnull", True),
                        ("cluster__isnull", True),
                        ("limits__contains", []),
                        ("nodes", []),
                        ("outcome", "reduced"),
                        Q(("limits", []), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="a_preemption_has_a_beneficiary_or_limits",
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
