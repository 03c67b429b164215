"""The API."""

from aiocosid.integrations.rest_framework import IdModelSerializer
from django.db import transaction
from django.urls import include, path
from rest_framework import mixins, routers, viewsets

from .models import Event, Order


class EventSerializer(IdModelSerializer):
    """An event; its id and its order's are text in JSON."""

    class Meta:
        model = Event
        fields = ("id", "order", "what")


class OrderSerializer(IdModelSerializer):
    """An order with its events."""

    events = EventSerializer(many=True, read_only=True)

    class Meta:
        model = Order
        fields = ("id", "title", "events")

    @transaction.atomic
    def create(self, validated_data: dict) -> Order:
        """Store an order and its first event."""
        order = super().create(validated_data)
        order.events.create(what="created")
        return order


class Orders(viewsets.ModelViewSet):
    """``/orders/``."""

    queryset = Order.objects.prefetch_related("events").order_by("pk")
    serializer_class = OrderSerializer


class Events(mixins.CreateModelMixin, viewsets.GenericViewSet):
    """``/events/``."""

    queryset = Event.objects.all()
    serializer_class = EventSerializer


router = routers.DefaultRouter()
router.register("orders", Orders)
router.register("events", Events)
urlpatterns = [path("", include(router.urls))]
