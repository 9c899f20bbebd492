"""What was measured, as rows and as text."""

from serving.measuring.settings import BASELINE, SIGNATURES, UNFOLDED, WAYS

LEGEND = (
    "Milliseconds. [low, high]: 95 % bootstrap intervals over the rounds. overhead: p50 minus the p50 of the same\n"
    f"model in process. ratio: to {BASELINE} over the same protocol (of signatures: to logits alone), the median over\n"
    "rounds in which the two took turns; of throughput: to the model in process on batches of as many rows."
)
# What is promised of the embedded server: limits, and on which side to be.
PROMISED_FOR = {"model": "bert_small", "length": 128, "server": None}
TARGETS = {
    "overhead over grpc, ms": (3.0, "below"),
    "overhead over rest, ms": (5.0, "below"),
    "throughput of {n} clients over grpc, of in process": (0.85, "above"),
    "throughput of {n} clients over rest, of in process": (0.85, "above"),
    "folded diet_abs over grpc, of learned": (1.02, "below"),
    "folded diet_abs over rest, of learned": (1.02, "below"),
}


def models_of(store, names, kind, *before):
    """Names of models with results, with their unfolded twins."""
    every = [found for name in names for found in (name, name + UNFOLDED)]
    return [name for name in every if any((kind, *before, name, way) in store for way in WAYS)]


def latency_rows(store, plan):
    """A row for each batch, model and way."""
    rows = []
    for batch in plan.batches:
        for name in models_of(store, plan.names, "latency", batch):
            for way in WAYS:
                found = store.get(("latency", batch, name, way))
                if found is not None:
                    rows.append({"batch": batch, **_model(name), "protocol": way, **_figures(found)})
    return rows


def signature_rows(store, plan):
    """A row for each model, signature and way."""
    rows = []
    for name in plan.names:
        for signature in SIGNATURES:
            for way in WAYS:
                found = store.get(("signatures", signature, name, way))
                if found is not None:
                    rows.append({"positions": name, "signature": signature, "protocol": way, **_figures(found)})
    return rows


def throughput_rows(store, plan):
    """A row for each model, number of clients and way."""
    rows = []
    for name in plan.load_names:
        for clients in plan.concurrency:
            for way in WAYS:
                found = store.get(("throughput", name, way, clients))
                if found is None:
                    continue
                row = {"positions": name, "clients": clients, "protocol": way}
                row |= _with_interval("rows_a_second", found["rows_a_second"])
                row |= _with_interval("ratio", found.get("ratio"))
                latency = found.get("latency") or {}
                row |= {p: latency.get(p) for p in ("p50", "p95", "p99")}
                rows.append({**row, "errors": found.get("errors")})
    return rows


def load_rows(store, plan):
    """A row for each model, way and offered rate."""
    rows = []
    for name in plan.load_names:
        for way in WAYS:
            for part in plan.fractions:
                found = store.get(("load", name, way, part))
                if found is None:
                    continue
                latency, late = found["latency"] or {}, found["late"] or {}
                row = {"positions": name, "protocol": way, "part": part, "offered": found["offered"]}
                row |= {"answered": found["answered"], **{p: latency.get(p) for p in ("p50", "p95", "p99")}}
                rows.append({**row, "sent_late_p99": late.get("p99"), "errors": sum(found["errors"].values())})
    return rows


def target_rows(store, plan):
    """Each promise, with what was measured of it; those that were not measured are left out.

    One is kept, or broken, if all of the interval is on one side of the limit; else the run cannot tell.
    """
    if any(store.data["settings"][name] != value for name, value in PROMISED_FOR.items()):
        return []
    clients, measured = max(plan.concurrency), {}
    for way in ("grpc", "rest"):
        found = store.get(("latency", 1, BASELINE, way)) or {}
        measured[f"overhead over {way}, ms"] = found.get("overhead")
        found = store.get(("throughput", BASELINE, way, clients)) or {}
        measured[f"throughput of {{n}} clients over {way}, of in process"] = found.get("ratio")
        found = store.get(("latency", 1, "diet_abs", way)) or {}
        measured[f"folded diet_abs over {way}, of learned"] = found.get("ratio")
    rows = []
    for what, (limit, side) in TARGETS.items():
        if measured[what] is not None:
            low, high = measured[what]["interval"]
            kept = high < limit if side == "below" else low >= limit
            broken = low >= limit if side == "below" else high < limit
            row = {"what": what.format(n=clients), **_with_interval("measured", measured[what])}
            rows.append(
                {**row, "promised": f"{side} {limit:g}", "kept": "yes" if kept else "no" if broken else "unclear"}
            )
    return rows


def every(store, plan):
    """Dict from the name of a table to its rows, without empty ones."""
    found = {
        "targets": target_rows(store, plan),
        "latency": latency_rows(store, plan),
        "signatures": signature_rows(store, plan),
        "throughput": throughput_rows(store, plan),
        "load": load_rows(store, plan),
    }
    return {name: rows for name, rows in found.items() if rows}


def shown(rows):
    """Rows with an interval beside its value, as `1.23 [1.20, 1.27]`, and without columns that are empty."""
    made = []
    for row in rows:
        row, new = dict(row), {}
        for name in list(row):
            if name.endswith(("_low", "_high")):
                continue
            value, low = row[name], row.get(f"{name}_low")
            new[name] = (
                _number(value) if low is None else f"{_number(value)} [{_number(low)}, {_number(row[name + '_high'])}]"
            )
        made.append(new)
    used = [name for name in made[0] if any(row[name] != "" for row in made)]
    return [{name: row[name] for name in used} for row in made]


def text(rows):
    """Columns under their names; numbers to the right."""
    rows = shown(rows)
    names = list(rows[0])
    lines = [[name.replace("_", " ") for name in names], *([row[name] for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    left = [not rows[0][name][:1].isdigit() for name in names]
    aligned = (
        "  ".join(c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(line, widths, left)) for line in lines
    )
    return "\n".join(line.rstrip() for line in aligned)


def _model(name):
    return {"positions": name.removesuffix(UNFOLDED), "folded": "no" if name.endswith(UNFOLDED) else "yes"}


def _figures(found):
    row = {"p50": found["p50"], "p50_low": found["p50_interval"][0], "p50_high": found["p50_interval"][1]}
    row |= {"p95": found["p95"], "p99": found["p99"]}
    return {**row, **_with_interval("overhead", found.get("overhead")), **_with_interval("ratio", found.get("ratio"))}


def _with_interval(name, found):
    if found is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: found["value"], f"{name}_low": found["interval"][0], f"{name}_high": found["interval"][1]}


def _number(value):
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return "" if value is None else str(value)
