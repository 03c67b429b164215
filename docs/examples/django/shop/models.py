"""Orders and their events."""

from aiocosid.integrations.django import SnowflakeField
from django.db import models


class Order(models.Model):
    """An order; its key is the one of ``DEFAULT_AUTO_FIELD``."""

    title = models.CharField(max_length=40)

    def __str__(self) -> str:
        return self.title


class Event(models.Model):
    """What happened to an order."""

    id = SnowflakeField(primary_key=True)
    order = models.ForeignKey(Order, models.CASCADE, related_name="events")
    what = models.CharField(max_length=40)

    def __str__(self) -> str:
        return self.what
