"""Views of both kinds, an API, and the admin."""

import os

from asgiref.sync import sync_to_async
from django.contrib import admin
from django.http import HttpRequest, JsonResponse
from django.urls import include, path
from rest_framework import routers, viewsets

from aiocosid.errors import WouldBlock
from aiocosid.integrations.rest_framework import IdModelSerializer

from .models import Event, Item, Order


def create(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": Order.objects.create(title="sync").pk, "pid": os.getpid()})


async def acreate(request: HttpRequest) -> JsonResponse:
    first = await Order.objects.acreate(title="async")
    second = Order(title="async")
    await second.asave()
    some = await Order.objects.abulk_create([Order(title="bulk") for _ in range(3)])
    item = await sync_to_async(Item)(order=first)
    await item.asave()
    return JsonResponse({"ids": [each.pk for each in (first, second, *some)], "item": item.number})


async def blocking(request: HttpRequest) -> JsonResponse:
    try:
        Item(order=None)
    except WouldBlock as error:
        return JsonResponse({"error": str(error)})
    return JsonResponse({})


class ItemSerializer(IdModelSerializer):
    class Meta:
        model = Item
        fields = "__all__"


class OrderSerializer(IdModelSerializer):
    class Meta:
        model = Order
        fields = ("id", "title", "items", "tags")
        read_only_fields = ("items",)


class EventSerializer(IdModelSerializer):
    class Meta:
        model = Event
        fields = "__all__"


def served(serializer: type) -> type:
    model = serializer.Meta.model
    options = {"queryset": model.objects.order_by("pk"), "serializer_class": serializer}
    return type(model.__name__, (viewsets.ModelViewSet,), options)


router = routers.DefaultRouter()
for each in (ItemSerializer, OrderSerializer, EventSerializer):
    router.register(each.Meta.model.__name__.lower(), served(each))

urlpatterns = [
    path("create", create),
    path("acreate", acreate),
    path("blocking", blocking),
    path("api/", include(router.urls)),
    path("admin/", admin.site.urls),
]
