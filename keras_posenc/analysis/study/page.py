"""The report as one HTML file that needs nothing else: figures, tables and maps are inside."""

import base64
import html
import json
from importlib import resources

import numpy as np


class Page:
    """Collects sections and writes them.

    Args:
        title: of the page.
        subtitle: a line below it.
    """

    def __init__(self, title, subtitle):
        self.title, self.subtitle = title, subtitle
        self.sections, self.examples = [], []

    def section(self, title, text=""):
        """Begins a section; figures and tables added after this are in it."""
        self.sections.append((title, [f"<p>{_escape(part)}</p>" for part in text.split("\n\n") if part]))

    def text(self, text):
        self._add(f"<p>{_escape(text)}</p>")

    def figure(self, png, caption=""):
        """A figure, as the bytes of a PNG file."""
        data = base64.b64encode(png).decode()
        alt = _escape(caption or "figure")
        self._add(
            f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"><figcaption>{_escape(caption)}</figcaption>'
            "</figure>"
        )

    def table(self, rows, title="", folded=False):
        """A list of dicts with the same keys; `folded` hides it behind its title."""
        if not rows:
            return
        names = list(rows[0])
        textual = {name for name in names if isinstance(rows[0][name], str)}
        head = "".join(f"<th{_kind(name in textual)}>{_escape(name.replace('_', ' '))}</th>" for name in names)
        body = "".join(
            "<tr>"
            + "".join(f"<td{_kind(n in textual, row[n])}>{_escape(_shown(row[n]))}</td>" for n in names)
            + "</tr>"
            for row in rows
        )
        table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        self._add(f"<details><summary>{_escape(title)}</summary>{table}</details>" if folded else table)

    def maps(self, examples):
        """Heatmaps that the reader chooses from.

        Args:
            examples: list of dicts of `text`, `tokens`, and `raw` and `effective`, `(layers, heads, n, n)`.
        """
        self.examples = [_packed(**example) for example in examples]
        self._add(
            '<div class="controls"><label>Text <select id="example"></select></label>'
            '<label>Layer <select id="layer"></select></label><label>Head <select id="head"></select></label>'
            '<label><input type="checkbox" id="own-scale"> a scale for each map</label></div>'
            '<div class="readout" id="readout">&nbsp;</div><div class="maps" id="maps"></div>'
        )

    def _add(self, content):
        self.sections[-1][1].append(content)

    def html(self):
        own = resources.files("keras_posenc.analysis.study")
        style, script = ((own / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
        anchors = [f"s{number}" for number in range(len(self.sections))]
        links = "".join(f'<a href="#{a}">{_escape(title)}</a>' for a, (title, _) in zip(anchors, self.sections))
        body = "".join(
            f'<section><h2 id="{anchor}">{_escape(title)}</h2>{"".join(parts)}</section>'
            for anchor, (title, parts) in zip(anchors, self.sections)
        )
        # "</" would end the script element whatever it is part of.
        data = json.dumps(self.examples, ensure_ascii=False).replace("</", "<\\/")
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_escape(self.title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{style}</style></head><body><h1>{_escape(self.title)}</h1>"
            f'<p class="soft">{_escape(self.subtitle)}</p><nav>{links}</nav>{body}'
            f'<script type="application/json" id="examples">{data}</script><script>{script}</script></body></html>'
        )


def _packed(text, tokens, raw, effective):
    """Maps as 16-bit integers, which are a quarter of their size in JSON, and the unit they count in."""
    unit = float(max(np.abs(raw).max(), np.abs(effective).max(), 1e-9)) / 32000
    packed = [base64.b64encode(np.round(maps / unit).astype("<i2").tobytes()).decode() for maps in (raw, effective)]
    layers, heads = raw.shape[:2]
    return dict(text=text, tokens=tokens, raw=packed[0], effective=packed[1], unit=unit, layers=layers, heads=heads)


def _escape(text):
    return html.escape(str(text))


def _kind(textual, value=""):
    if not textual:
        return ""
    return ' class="prose"' if len(str(value)) > 40 else ' class="text"'


def _shown(value):
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:.4g}" if abs(value) < 0.01 or abs(value) >= 1000 else f"{value:.3f}"
    return "" if value is None else value
