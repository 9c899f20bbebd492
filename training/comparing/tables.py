"""What the runs found, as rows: one for each encoding, medians and spreads over its seeds."""

import numpy as np

from training.comparing.subjects import LENGTH, LONGER

SCORES = ("score", "test", "longer")


def spread(name, values):
    """Median, smallest, largest and sample standard deviation, as columns that begin with `name`."""
    if not values:
        return {name: None, f"{name}_min": None, f"{name}_max": None, f"{name}_std": None}
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {
        name: float(np.median(values)),
        f"{name}_min": min(values),
        f"{name}_max": max(values),
        f"{name}_std": deviation,
    }


def rows(results, positions, metric, times):
    """The table.

    Args:
        results: list of what the finished runs wrote.
        positions: all encodings, in order; one without a finished run has an empty row.
        metric: name of the figure that is compared.
        times: dict of encodings to their step times.

    Returns: list of dicts. Columns that no row has are left out.
    """
    made = []
    for position in positions:
        own = [result for result in results if result["position"] == position]
        figures = {
            "score": [result["score"] for result in own],
            "test": [result["sets"]["test"][metric] for result in own if "test" in result["sets"]],
            "longer": [result["sets"][LONGER][metric] for result in own if LONGER in result["sets"]],
        }
        row = {"positions": position, "runs": len(own)}
        for name, values in figures.items():
            row |= spread(name, values)
        time = times.get(position, {})
        row |= {
            "parameters": own[0]["parameters"] if own else None,
            "position_parameters": own[0]["position_parameters"] if own else None,
            "step_time_ratio": time.get("ratio"),
            "step_time_low": time.get("quartiles", [None])[0],
            "step_time_high": time.get("quartiles", [None])[-1],
            "step_milliseconds": time.get("milliseconds"),
            "best_step": float(np.median([r["best_step"] for r in own])) if own and own[0]["best_step"] else None,
        }
        made.append(row)
    filled = [name for name in made[0] if any(row[name] is not None for row in made)]
    return [{name: row[name] for name in filled} for row in made]


def by_length(results, positions, metric):
    """`{position: [(length, median, smallest, largest)]}` over the seeds."""
    found = {}
    for position in positions:
        own = [result["sets"] for result in results if result["position"] == position]
        lengths = sorted({int(name.removeprefix(LENGTH)) for sets in own for name in sets if name.startswith(LENGTH)})
        points = []
        for length in lengths:
            values = [sets[f"{LENGTH}{length}"][metric] for sets in own if f"{LENGTH}{length}" in sets]
            points.append((length, float(np.median(values)), min(values), max(values)))
        if points:
            found[position] = points
    return found


def length_rows(curves):
    """The curves over lengths as a table, a row for each encoding and length."""
    names = ("length", "score", "score_min", "score_max")
    return [{"positions": name, **dict(zip(names, point))} for name, points in curves.items() for point in points]


def shown(rows):
    """Rows with few columns of text, for the console and the page."""
    several = any(row["runs"] > 1 for row in rows)
    percent = all((row.get("score") or 0) <= 1 for row in rows)
    made = []
    for row in rows:
        new = {"positions": row["positions"]}
        for name in SCORES:
            if name in row:
                new[name] = _number(row[name], percent)
                if several and name != "test":
                    new[f"{name} range"] = _range(row, name, percent)
            if several and name == "score" and "score_std" in row:
                new["std"] = _number(row["score_std"], percent)
        new["runs"] = str(row["runs"])
        for name, title in (("parameters", "parameters"), ("position_parameters", "of positions")):
            if name in row:
                new[title] = "" if row[name] is None else f"{row[name]:,}"
        if "step_time_ratio" in row:
            ratio = row["step_time_ratio"]
            new["step time"] = "" if ratio is None else f"{ratio:.2f}"
            new["quartiles"] = "" if ratio is None else f"{row['step_time_low']:.2f}..{row['step_time_high']:.2f}"
        made.append(new)
    return made


def text(rows):
    """The table as lines of text."""
    made = shown(rows)
    widths = {name: max(len(name), *(len(row[name]) for row in made)) for name in made[0]}
    lines = []
    for row in [{name: name for name in widths}, *made]:
        cells = [f"{row[n]:<{w}}" if n == "positions" else f"{row[n]:>{w}}" for n, w in widths.items()]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _number(value, percent):
    if value is None:
        return ""
    return f"{value:.3f}" if percent else f"{value:.1f}"


def _range(row, name, percent):
    if row[name] is None:
        return ""
    return f"{_number(row[f'{name}_min'], percent)}..{_number(row[f'{name}_max'], percent)}"
