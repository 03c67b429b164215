"""The models in the admin."""

from django.contrib import admin

from .models import Event, Item, Order


class ItemInline(admin.TabularInline):
    model = Item
    extra = 1
    fields = ("order",)


class OrderAdmin(admin.ModelAdmin):
    inlines = (ItemInline,)


admin.site.register(Order, OrderAdmin)
admin.site.register(Event)
