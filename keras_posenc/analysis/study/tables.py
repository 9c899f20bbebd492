"""Results as CSV and JSON files."""

import csv
import json

from keras_posenc.utils.plain import plain


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
    """JSON that every reader takes: NaN and infinity, which JSON does not have, become null."""
    path.write_text(json.dumps(plain(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
