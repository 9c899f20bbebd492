"use strict";
// TF-Serving's REST API, as a browser can use it. All files of the viewer are classic scripts: browsers do not load
// modules from file:// addresses, and the page should open from there too.

class ApiError extends Error {
  // `hint` says what to do; `status` is 0 where no answer came.
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

const Api = (() => {
  const TIMEOUT_MS = 120000;
  // Strings are matched first, and kept, so that a word NaN inside one is no number.
  const TOKENS = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
  const NUMBERS = { NaN: "null", Infinity: "1e999", "-Infinity": "-1e999" };

  // TF-Serving writes NaN and Infinity, which are no JSON. NaN becomes null, which it never writes itself.
  const parse = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return JSON.parse(text.replace(TOKENS, (found) => NUMBERS[found] ?? found));
    }
  };

  const serverAddress = (text) => {
    const trimmed = text.trim();
    const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`;
    let url = null;
    try {
      url = new URL(full);
    } catch {
      /* said below */
    }
    if (!url || !["http:", "https:"].includes(url.protocol)) {
      throw new ApiError(`"${text}" is not a server address.`, "Write it as http://host:8501.");
    }
    return (url.origin + url.pathname).replace(/\/+$/, "");
  };

  const explain = (status, message, name) => {
    if (status === 404) {
      return [`The server has no model "${name}", or not this version of it.`, "Check the name and the version."];
    }
    if (status === 429 || status === 503) return ["The server is busy or still loading.", "Try again in a moment."];
    if (status === 504) return ["The server did not finish in time.", "Use a shorter text, or a longer timeout there."];
    if (status === 413) return ["The request is too large for the server.", "Use a shorter text."];
    if (/takes from 1 to \d+ tokens/.test(message)) {
      return ["The input is too long for this model.", `At most ${message.match(/1 to (\d+) tokens/)[1]} tokens.`];
    }
    return [status >= 500 ? "The server failed." : "The server refused the request.", ""];
  };

  class Server {
    constructor(address) {
      this.address = serverAddress(address);
    }

    path(model, version) {
      const which = version ? `/versions/${encodeURIComponent(version)}` : "";
      return `${this.address}/v1/models/${encodeURIComponent(model)}${which}`;
    }

    async request(url, name, options, signal) {
      const timeout = AbortSignal.timeout(TIMEOUT_MS);
      let response, text;
      try {
        response = await fetch(url, { ...options, signal: AbortSignal.any([timeout, signal].filter(Boolean)) });
        text = await response.text();
      } catch (error) {
        if (signal?.aborted) throw error;
        if (timeout.aborted) throw new ApiError(`${this.address} did not answer in ${TIMEOUT_MS / 1000} s.`);
        throw new ApiError(`${this.address} cannot be reached.`, this.reach());
      }
      let body;
      try {
        body = parse(text);
      } catch {
        const hint = "Is this the REST port of TF-Serving (8501 by default, not the gRPC port 8500)?";
        throw new ApiError(`${this.address} did not answer in JSON (HTTP ${response.status}).`, hint, response.status);
      }
      if (!response.ok) {
        const said = String(body?.error ?? `HTTP ${response.status}`);
        const [message, hint] = explain(response.status, said, name);
        throw new ApiError(message, [hint, `It says: ${said}`].filter(Boolean).join(" "), response.status);
      }
      return body;
    }

    reach() {
      if (location.protocol === "https:" && this.address.startsWith("http:")) {
        return "This page came over https, and browsers do not let it ask a server over http.";
      }
      const same = this.address.startsWith(location.origin);
      const cors = "If it is, it has to allow other pages: start it with --rest_api_enable_cors_support.";
      return `Is it running?${same ? "" : ` ${cors}`}`;
    }

    status(model, signal) {
      return this.request(this.path(model), model, {}, signal);
    }

    metadata(model, version, signal) {
      return this.request(`${this.path(model, version)}/metadata`, model, {}, signal);
    }

    // Outputs by name, batch first. The body goes as text/plain, which TF-Serving does not look at: a page of another
    // origin then needs no preflight request, which TF-Serving refuses to pages from file://.
    async predict(model, version, signature, inputs, signal) {
      const body = JSON.stringify({ signature_name: signature, inputs });
      const url = `${this.path(model, version)}:predict`;
      const answer = await this.request(url, model, { method: "POST", body }, signal);
      if (answer?.outputs === undefined) throw new ApiError("The answer has no outputs.", `From ${this.address}.`);
      return answer.outputs;
    }
  }

  // What a model can do, from the metadata that every TF-Serving has.
  const abilities = (metadata) => {
    const found = metadata?.metadata?.signature_def?.signature_def ?? {};
    // Size of an axis of the maps, null where any is possible.
    const size = (signature, at) => {
      const dims = found[signature]?.outputs?.attention?.tensor_shape?.dim ?? [];
      return Math.max(0, Number(dims.at(at)?.size ?? 0)) || null;
    };
    const stacked = ["effective_attention", "attention"].filter((name) => found[name]);
    return {
      signatures: Object.keys(found).filter((name) => !name.startsWith("__")).sort(),
      text: "text" in found,
      perLayer: "layer_attention" in found,
      stacked: stacked[0] ?? null,
      effective: "layer_attention" in found || "effective_attention" in found,
      layers: stacked.map((name) => size(name, 1)).find(Boolean) ?? null,
      // A fixed number of keys: those of a Linformer, which are no tokens.
      compressed: ["layer_attention", ...stacked].some((name) => size(name, -1) !== null),
      defaultInputs: Object.keys(found.serving_default?.inputs ?? {}).sort(),
    };
  };

  // Strings of a response: TF-Serving gives {"b64": ...} for outputs whose name ends in _bytes.
  const string = (value) => {
    if (typeof value?.b64 !== "string") return String(value);
    return new TextDecoder().decode(Uint8Array.from(atob(value.b64), (c) => c.charCodeAt(0)));
  };

  // Models of the server this page came from, [] elsewhere: TF-Serving itself has no list of them.
  const listed = async () => {
    if (!location.protocol.startsWith("http")) return [];
    try {
      const response = await fetch("config.json", { cache: "no-store" });
      const models = response.ok ? (await response.json()).models : [];
      return Array.isArray(models) ? models.filter((model) => typeof model?.name === "string") : [];
    } catch {
      return [];
    }
  };

  return { parse, serverAddress, Server, abilities, string, listed };
})();
