"""Send a hundred orders to the workers, and print what came back."""

from tasks import bill

results = [bill.delay(order).get(timeout=30) for order in range(100)]
invoices = {result["invoice"] for result in results}
events = {result["event"] for result in results}
print(f"{len(invoices)} invoices, {len(events)} events")
