"""Reads measured values and the paper's, and makes means, deviations and ratios of them. Standard library only."""

import csv
import pathlib
import statistics
from collections import namedtuple

# One point of a curve. x is as it was written; value and deviation have the unit of the values.
Point = namedtuple("Point", "x value deviation runs unit source", defaults=("",))


class Data:
    """The values of one figure: by series, then by x, in the order in which they were measured."""

    def __init__(self, rows):
        self.values = {}
        self.of_run = {}
        for row in rows:
            self.of_run.setdefault((row["series"], int(row["run"])), []).append((row["x"], float(row["value"])))
            self.values.setdefault(row["series"], {}).setdefault(row["x"], []).append(
                (float(row["value"]), row["unit"])
            )

    def series(self):
        return list(self.values)

    def points(self, series):
        """The mean of the runs at each x, with the standard deviation (0 of one run)."""
        points = []
        for x, values in self.values.get(series, {}).items():
            numbers = [value for value, _ in values]
            spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
            points.append(Point(x, statistics.fmean(numbers), spread, len(numbers), values[0][1]))
        return points

    def point(self, series, x):
        """One of them, or None if it was not measured."""
        return next((point for point in self.points(series) if point.x == str(x)), None)

    def over(self, series, base):
        """Each point divided by the base: speed-ups of rates, slowdowns of times."""
        return [scaled(point, base) for point in self.points(series)]

    def one_run(self, series, run=0):
        """(x, value) of one run, x as a number: what was sampled over time."""
        return [(float(x), value) for x, value in self.of_run.get((series, run), [])]

    def runs(self):
        """How often everything was repeated."""
        return 1 + max((run for _, run in self.of_run), default=-1)

    def repeats(self):
        """The same in words, where some series were repeated more often than others; what is written once is no measurement."""
        last = {}
        for series, run in self.of_run:
            last[series] = max(run, last.get(series, 0))
        counts = sorted({run + 1 for run in last.values()} - {1}) or [1]
        return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


class Paper:
    """The paper's points, each with where it stands."""

    def __init__(self, rows):
        self.rows = list(rows)

    def points(self, series):
        return [
            Point(row["x"], float(row["value"]), float(row["deviation"]), 0, row["unit"], row["source"])
            for row in self.rows
            if row["series"] == series
        ]

    def point(self, series, x):
        return next((point for point in self.points(series) if point.x == str(x)), None)

    def sources(self):
        """Each source once, in order."""
        return list(dict.fromkeys(row["source"].split(", from rates")[0] for row in self.rows))


def scaled(point, base):
    """A point as a multiple of a base value."""
    return point._replace(value=point.value / base, deviation=point.deviation / base, unit="x")


def xs(points):
    return [float(point.x) for point in points]


def values(points):
    return [point.value for point in points]


def deviations(points):
    return [point.deviation for point in points]


def read(path):
    with open(path, newline="") as file:
        return Data(csv.DictReader(file))


def paper(figure, path=pathlib.Path(__file__).with_name("paper.csv")):
    with open(path, newline="") as file:
        return Paper([row for row in csv.DictReader(file) if row["figure"] == figure])


def human(value, unit=""):
    """A number as people say it: 1.23 million, 45,600, 7.8, 0.012."""
    size = abs(value)
    if size >= 1e6:
        text = f"{value / 1e6:.3g} million"
    elif size >= 100:
        text = f"{float(f'{value:.3g}'):,.0f}"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".strip()
