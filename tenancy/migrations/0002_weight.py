"""The weight of tenants: their part of their parent's share of turns."""

from decimal import Decimal

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenancy', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='tenant',
            name='weight',
            field=models.DecimalField(db_default=1, decimal_places=2, default=1, help_text="Its part of its parent's share.", max_digits=6),
        ),
        migrations.AddConstraint(
            model_name='tenant',
            constraint=models.CheckConstraint(condition=models.Q(('weight__gte', Decimal('0.01')), ('weight__lte', Decimal('1000'))), name='tenant_weight_is_in_range'),
        ),
    ]
