"""What was measured, as text and as a figure."""

from serving.peering import catalog

COLOURS = {"ours": "#0b62c4", "other": "#9aa5ad"}


def limit(store, batch):
    """The fastest large product beside this batch: its name and GFLOP/s, or `None`."""
    found = {name: store.get(("forward", batch, name)) for name in catalog.PRODUCTS}
    rates = {name: result["gflops"] for name, result in found.items() if result}
    best = max(rates, key=rates.get, default=None)
    return None if best is None else (best, rates[best])


def rows(store, batch):
    """Dicts, the fastest first: what `store` has of each peer, its `name`, `label` and share of the limit."""
    found = []
    bound = limit(store, batch)
    for name, entry in catalog.PEERS.items():
        result = store.get(("forward", batch, name))
        if result is not None:
            share = None if bound is None else result["gflops"] / bound[1]
            found.append({**result, "name": name, "label": entry.label, "share": share})
    return sorted(found, key=lambda row: row["ratio"])


def table(store, batches, title):
    """Text with a part for each batch size."""
    parts = [title]
    for batch in batches:
        found = rows(store, batch)
        if not found:
            continue
        lines = [f"batch {batch}"]
        head = f"{'':<26}{'time / ours [quartiles]':<26}{'median ms':>10}{'fastest':>10}{'CPU ms':>10}"
        lines.append(head + f"{'GFLOP/s':>10}{'of limit':>10}")
        for row in found:
            low, high = row["quartiles"]
            ratio = f"{row['ratio']:.2f} [{low:.2f}, {high:.2f}]"
            share = "" if row["share"] is None else f"{row['share']:.0%}"
            lines.append(
                f"{row['label']:<26}{ratio:<26}{row['milliseconds']:>10.1f}{row['fastest_milliseconds']:>10.1f}"
                f"{row['cpu_milliseconds']:>10.1f}{row['gflops']:>10.0f}{share:>10}"
            )
        bound = limit(store, batch)
        if bound is not None:
            lines.append(f"limit: {bound[1]:.0f} GFLOP/s, {catalog.PRODUCTS[bound[0]].label} of 2048 x 2048 matrices")
        parts.append("\n".join(lines))
    parts.append("\n".join(_notes(store)))
    return "\n\n".join(part for part in parts if part)


def _notes(store):
    for name, entry in catalog.ENTRIES.items():
        about, missing = store.get(("peer", name)), store.get(("missing", name))
        if about is not None and name in catalog.PEERS:
            versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
            yield f"{entry.label}: {versions}" + (f"; {about['notes']}" if about["notes"] else "")
        elif missing is not None:
            yield f"{entry.label}: not measured, {missing['reason']}"


def plot(store, batches, path):
    """Bars of the time relative to ours, with quartiles, a panel for each batch size."""
    from matplotlib.figure import Figure

    batches = [batch for batch in batches if rows(store, batch)]
    if not batches:
        return
    height = max(len(rows(store, batch)) for batch in batches)
    figure = Figure(figsize=(1.5 + 5.2 * len(batches), 1.3 + 0.4 * height), layout="constrained")
    for axes, batch in zip(figure.subplots(1, len(batches), squeeze=False)[0], batches):
        found = rows(store, batch)
        for place, row in enumerate(found):
            own = row["name"].startswith(catalog.BASELINE)
            axes.barh(place, row["ratio"], 0.7, color=COLOURS["ours" if own else "other"])
            axes.plot(row["quartiles"], [place] * 2, color="0.25", linewidth=1)
            share = "" if row["share"] is None else f", {row['share']:.0%}"
            text = f" {row['milliseconds']:.0f} ms{share}"
            axes.text(max(row["ratio"], row["quartiles"][1]), place, text, va="center", fontsize=8)
        axes.set_yticks(range(len(found)), [row["label"] for row in found])
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_xlim(0, 1.3 * max(row["quartiles"][1] for row in found))
        axes.axvline(1.0, color="0.2", linewidth=1)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.set_title(f"batch {batch}")
        axes.set_xlabel("time relative to ours (beside: ms, share of GEMM limit)")
    figure.savefig(path, dpi=110)
