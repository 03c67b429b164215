"""Written by ``manage.py makemigrations``."""

import aiocosid.integrations.django
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Order',
            fields=[
                ('id', aiocosid.integrations.django.CosIdField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('title', models.CharField(max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('id', aiocosid.integrations.django.SnowflakeField(primary_key=True, serialize=False)),
                ('what', models.CharField(max_length=40)),
                ('order', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='shop.order')),
            ],
        ),
    ]
