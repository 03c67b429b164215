"""Pictures of what an id costs, and of the recorded ratios: ``python -m bench.report``."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from itertools import pairwise
from math import log10
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs" / "img"
HISTORY: Final = Path(__file__).parent / "results" / "history.csv"
OURS, OTHERS = "#00796b", "#90a4ae"
COLORS: Final = ("#00796b", "#c2185b", "#1565c0", "#ef6c00", "#6a1b9a")
WIDTH, LEFT, RIGHT, ROW = 640, 190, 90, 30

LABELS: Final = {
    "uuid4()": ("uuid.uuid4(), a plain call", False),
    "INCR for each id": ("INCR for each id", False),
    "INCRBY 1000 by hand": ("INCRBY block, by hand", False),
    "SegmentId": ("aiocosid, one segment", True),
    "Snowflake": ("aiocosid, Snowflake", True),
    "chain": ("aiocosid, chain", True),
}
QUESTIONS: Final = {
    "q01_next_id": "await next_id() / await nothing",
    "q02_next_id_nowait": "next_id_nowait() / a method",
    "q03_next_ids": "a batch / a list of integers",
    "q10_snowflake_next_id": "await a Snowflake / await nothing",
    "q16_sync": "a thread's id / a method",
}


def svg(height: float, title: str, parts: list[str]) -> str:
    """Return a picture that can be read on a light and on a dark page."""
    text = "\n".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" \
font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="{title}">
<rect width="{WIDTH}" height="{height:.0f}" rx="8" fill="#fff"/>
<text x="14" y="24" font-size="14" fill="#222">{title}</text>
{text}
</svg>
"""


def cost(answer: dict[str, Any]) -> str:
    """Return the time of one id of each kind, beside calling `uuid.uuid4()`, as bars."""
    raw = answer["raw"]
    floor = statistics.median(raw["floor"])
    times = {name: statistics.median(each) / floor for name, each in raw["times"].items()}
    times["uuid4()"] = 1.0
    low, high = log10(min(times.values())) - 0.3, log10(max(times.values()))
    parts: list[str] = []
    for number, (name, (label, is_ours)) in enumerate(LABELS.items()):
        y = 40 + number * ROW
        width = (log10(times[name]) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        times_text = f"{times[name]:.2g} x" if times[name] < 10 else f"{times[name]:.0f} x"
        color = OURS if is_ours else OTHERS
        bar = f'x="{LEFT}" y="{y}" width="{width:.0f}" height="20" fill="{color}"'
        parts += [
            f'<text x="14" y="{y + 15}" fill="#222">{label}</text>',
            f"<rect {bar}/>",
            f'<text x="{LEFT + width + 8:.0f}" y="{y + 15}" fill="#222">{times_text}</text>',
        ]
    title = "Time for one id, compared with uuid.uuid4(); logarithmic"
    return svg(48 + len(LABELS) * ROW, title, parts)


def remember(answers: dict[str, Any], day: str) -> None:
    """Note the ratios of a day; a later run of the same day replaces its own."""
    known = {(row["day"], row["question"]): row["ratio"] for row in history()}
    for question in QUESTIONS:
        ratio = answers.get(question, {}).get("raw", {}).get("ratio")
        if ratio is not None:
            known[day, question] = f"{ratio:.3f}"
    with HISTORY.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("day", "question", "ratio"))
        writer.writerows((*key, ratio) for key, ratio in sorted(known.items()))


def history() -> list[dict[str, str]]:
    """Return the noted ratios, by day and question."""
    if not HISTORY.exists():
        return []
    with HISTORY.open(newline="") as file:
        return list(csv.DictReader(file))


def course() -> str:
    """Return how the ratios went, a line for each question, from day to day."""
    rows = history()
    days = sorted({row["day"] for row in rows})
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        lines[row["question"]].append((days.index(row["day"]), float(row["ratio"])))
    most = max(value for points in lines.values() for _, value in points)
    top, bottom, left, right = 44, 244, 46, 30
    across = (WIDTH - left - right) / max(len(days) - 1, 1)

    def y(value: float) -> float:
        return bottom - value / most * (bottom - top)

    parts: list[str] = []
    for line in range(int(most) + 1):
        parts.append(f'<path d="M{left} {y(line):.1f}H{WIDTH - right}" stroke="#ddd"/>')
        parts.append(f'<text x="14" y="{y(line) + 4:.1f}" fill="#444">{line} x</text>')
    parts += [
        f'<text x="{left + number * across:.0f}" y="{bottom + 20}" font-size="11" fill="#444" '
        f'text-anchor="middle">{day[5:]}</text>'
        for number, day in enumerate(days)
    ]
    for number, (question, label) in enumerate(QUESTIONS.items()):
        color = COLORS[number]
        points = [(left + at * across, y(value)) for at, value in lines[question]]
        parts += [
            f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" stroke="{color}" stroke-width="2"/>'
            for (a, b), (c, d) in pairwise(points)
        ]
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{color}"/>' for a, b in points]
        at_y = bottom + 36 + number * 20
        parts.append(f'<rect x="{left}" y="{at_y}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{left + 20}" y="{at_y + 11}" fill="#222">{label}</text>')
    return svg(bottom + 48 + len(QUESTIONS) * 20, "Recorded ratios, from day to day", parts)


def draw(answers: dict[str, Any]) -> None:
    """Write both pictures."""
    (DOCS / "cost.svg").write_text(cost(answers["q21_which"]), "utf-8")
    (DOCS / "ratios.svg").write_text(course(), "utf-8")
