import django.db.models.functions.text
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0001_initial'),
        ('tenancy', '0001_initial'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='cluster',
            name='cluster_driver_is_known',
        ),
        migrations.AlterField(
            model_name='cluster',
            name='driver',
            field=models.CharField(default='kubernetes', max_length=20),
        ),
        migrations.AddConstraint(
            model_name='cluster',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('driver', 'kubernetes'), ('server__startswith', 'https://')), models.Q(models.Q(('driver__in', ['', 'kubernetes']), _negated=True), ('server__startswith', django.db.models.functions.text.Concat(models.F('driver'), models.Value('://')))), _connector='OR'), name='cluster_driver_is_that_of_its_server'),
        ),
    ]
