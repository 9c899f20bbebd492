"""Results as CSV and JSON files."""

import csv
import json


def write_tables(found, folder):
    """`folder/<name>.csv` for each result that has `rows()`.

    Returns: dict from name to rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = {name: result.rows() for name, result in found.items() if hasattr(result, "rows")}
    for name, rows in tables.items():
        if rows:
            write_csv(folder / f"{name}.csv", rows)
    return tables


def write_csv(path, rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def write_json(path, content):
    """JSON that every reader takes: NaN, which JSON does not have, becomes null."""
    path.write_text(json.dumps(_plain(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if value != value else value
