"""A model for each way in which a key comes about."""

from typing import Any

from django.db import models

from aiocosid.integrations.django import CosIdDefault, CosIdQuerySet, SnowflakeField

NUMBER: Any = CosIdDefault("number")
NOTE: Any = CosIdDefault("note")


class Tag(models.Model):
    name = models.CharField(max_length=40, unique=True)


class Order(models.Model):
    title = models.CharField(max_length=40)
    tags = models.ManyToManyField(Tag, blank=True)


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    number = models.BigIntegerField(unique=True, default=NUMBER, editable=False)

    objects = CosIdQuerySet.as_manager()


class GiftOrder(Order):
    card = models.CharField(max_length=40)


class Event(models.Model):
    id = SnowflakeField(primary_key=True)
    order = models.ForeignKey(Order, models.CASCADE, null=True, related_name="+")
    gift = models.ForeignKey(GiftOrder, models.CASCADE, null=True, blank=True)


class MachineRecord(models.Model):
    id = models.BigIntegerField(primary_key=True, default=NOTE, editable=False)
    title = models.CharField(max_length=40)
