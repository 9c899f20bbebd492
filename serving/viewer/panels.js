"use strict";
// What stands beside the figure: logits as bars, the tokens, where one token looks, and figures of the head.

const Panels = (() => {
  const MOST = 12;

  const softmax = (values) => {
    const top = Math.max(...values);
    const powers = values.map((value) => Math.exp(value - top));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((value) => value / sum);
  };

  // Names of classes: those the user wrote, else those of the model, else numbers.
  const names = (count, written, about) => {
    const given = written ? written.split(",").map((part) => part.trim()) : (about.labels ?? []);
    const known = about.task === "span" && count === 2 ? ["start", "end"] : given;
    return Array.from({ length: count }, (_, i) => known[i] || `${i}`);
  };

  // The logits of the input, or of one token where each has its own.
  const readLogits = ({ shape, data }, token) => {
    const count = shape[shape.length - 1] ?? 1;
    const perToken = shape.length === 2;
    const at = perToken ? Math.min(token ?? 0, shape[0] - 1) : 0;
    return { perToken, at, values: [...data.subarray(at * count, (at + 1) * count)] };
  };

  const bar = (name, value, limit, note, attributes = {}) => {
    const row = Dom.make("div", { class: "bar", role: "listitem", ...attributes });
    const track = Dom.make("span", { class: "track", "aria-hidden": "true" });
    const fill = Dom.make("span", { class: value < 0 ? "fill below" : "fill above" });
    const part = Number.isFinite(value) && limit > 0 ? Math.min(Math.abs(value) / limit, 1) * 50 : 0;
    fill.style.width = `${part}%`;
    fill.style.left = `${value < 0 ? 50 - part : 50}%`;
    track.append(fill);
    row.append(Dom.make("span", { class: "name", title: name }, name), track);
    row.append(Dom.make("span", { class: "value" }, Maps.short(value)));
    if (note !== null) row.append(Dom.make("span", { class: "note" }, note));
    return row;
  };

  const logits = (host, heading, session, state) => {
    const { perToken, at, values } = readLogits(session.logits, state.token);
    const { task } = session.about;
    const classes = task ? ["classify", "token_classify", "masked_lm"].includes(task) : values.length <= 50;
    const shares = classes && values.length > 1 && values.every(Number.isFinite) ? softmax(values) : null;
    const labels = names(values.length, state.labels, session.about);
    let order = values.map((_, i) => i);
    if (values.length > MOST) {
      order.sort((a, b) => (classes ? values[b] - values[a] : Math.abs(values[b]) - Math.abs(values[a])));
      order = order.slice(0, MOST);
    }
    const limit = Math.max(...order.map((i) => Math.abs(values[i])).filter(Number.isFinite), 0);
    const token = perToken ? ` at token ${at + 1}, \u201c${session.input.tokens[at] ?? ""}\u201d` : "";
    const few = values.length > MOST ? `: the ${MOST} ${classes ? "largest" : "strongest"} of ${values.length}` : "";
    heading.textContent = `${classes || task ? "Logits" : "Output"}${token}${few}`;
    const rows = order.map((i) =>
      bar(labels[i], values[i], limit, shares && `${(100 * shares[i]).toFixed(1)} %`, { "data-class": i }),
    );
    host.replaceChildren(...rows);
  };

  // Tokens as buttons, coloured by the weights of the chosen one.
  const tokens = (host, session, figure, chosen, pick) => {
    const { input } = session;
    const buttons = input.tokens.map((token, i) => {
      const about = [`${i + 1}`, `id ${input.tokenIds[i]}`, `segment ${input.segmentIds[i]}`];
      if (input.paddingMask[i] === 0) about.push("padding");
      const button = Dom.make("button", { type: "button", class: "token", title: about.join(", ") }, token || "\u00a0");
      button.setAttribute("aria-pressed", String(i === chosen));
      if (input.paddingMask[i] === 0) button.classList.add("padding");
      if (i > 0 && input.segmentIds[i] !== input.segmentIds[i - 1]) button.classList.add("next-segment");
      if (figure && chosen !== null && figure.columnTokens === input.tokens) {
        const value = figure.map.at(chosen, i);
        button.style.background = figure.scale.css(value);
        button.style.color = figure.scale.ink(value);
      }
      button.addEventListener("click", () => pick(i));
      return button;
    });
    host.replaceChildren(...buttons);
  };

  // The strongest weights of one query.
  const looks = (host, figure, chosen) => {
    if (!figure || chosen === null) {
      host.replaceChildren(Dom.make("p", { class: "soft" }, "Choose a token to see where it looks."));
      return;
    }
    const order = [...figure.columns];
    order.sort((a, b) => Math.abs(figure.map.at(chosen, b)) - Math.abs(figure.map.at(chosen, a)));
    const rows = order.slice(0, 8).map((key) => {
      const name = `${key + 1} ${figure.columnTokens[key] ?? ""}`;
      return bar(name, figure.map.at(chosen, key), figure.scale.limit, null, { "data-key": key });
    });
    host.replaceChildren(...rows);
  };

  // Figures of a head as a list of terms.
  const facts = (host, pairs) => {
    host.replaceChildren(...pairs.flatMap(([term, text]) => [Dom.make("dt", {}, term), Dom.make("dd", {}, text)]));
  };

  return { softmax, names, readLogits, logits, tokens, looks, facts };
})();
