"""Import the orders of a CSV file; each row gets an id that the application's rows never get."""

import csv
import sys
from pathlib import Path

import aiocosid.sync

source, target, store = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

with source.open(newline="") as lines:
    rows = list(csv.DictReader(lines))

with aiocosid.sync.connect(store, namespace="shop") as ids:
    # step=1 keeps no ids ahead: one call to the store reserves as many as there are rows.
    numbers = ids.segment("orders", step=1).next_ids(len(rows)) if rows else []

with target.open("w", newline="") as lines:
    writer = csv.DictWriter(lines, ["id", "title"])
    writer.writeheader()
    writer.writerows(row | {"id": number} for row, number in zip(rows, numbers, strict=True))

print(f"{len(rows)} orders, {numbers[0]} to {numbers[-1]}" if rows else "no orders")
