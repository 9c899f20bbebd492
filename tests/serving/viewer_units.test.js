"use strict";
// Functions of the viewer that need no browser. Run by `node --test`, from test_serving_viewer.py.

const assert = require("node:assert/strict");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { test } = require("node:test");
const vm = require("node:vm");

const folder = join(__dirname, "..", "..", "serving", "viewer");
const files = ["api", "maps", "colours", "state", "downloads", "panels", "figures", "controls", "session"];
const read = (name) => readFileSync(join(folder, `${name}.js`), "utf8").replace(`"use strict";`, "");
const source = files.map(read).join("\n");
const names = "Api, Maps, Colours, State, Downloads, Panels, Figures, Controls, Session, ApiError";
const context = vm.createContext({ URL, URLSearchParams, TextDecoder, atob, setTimeout });
const viewer = vm.runInContext(`"use strict";\n${source}\n({ ${names} })`, context);
const { Api, Maps, Colours, State, Downloads, Panels, Controls, Session, ApiError } = viewer;
const plain = (value) => JSON.parse(JSON.stringify(value));

test("numbers that are no JSON are read, words that look like them are kept", () => {
  const text = '{"a": [NaN, -Infinity, Infinity, 1.5e-3], "b": "NaN \\" Infinity", "NaN": -1.0}';
  const found = Api.parse(text);
  assert.deepEqual([...found.a], [null, -Infinity, Infinity, 0.0015]);
  assert.equal(found.b, 'NaN " Infinity');
  assert.equal(found.NaN, -1);
  assert.throws(() => Api.parse("<html>"));
});

test("addresses are http or nothing", () => {
  assert.equal(Api.serverAddress(" localhost:8501/ "), "http://localhost:8501");
  assert.equal(Api.serverAddress("https://host/prefix/"), "https://host/prefix");
  for (const wrong of ["javascript://alert(1)", "file:///etc/passwd", "data://x", "http://", ""]) {
    assert.throws(() => Api.serverAddress(wrong), /not a server address/, wrong);
  }
});

test("metadata tell signatures, layers and compressed keys", () => {
  const dim = (...sizes) => ({ tensor_shape: { dim: sizes.map((size) => ({ size: String(size) })) } });
  const signature_def = {
    serving_default: { inputs: { token_ids: {} }, outputs: {} },
    attention: { outputs: { attention: dim(-1, 6, 12, -1, -1) } },
  };
  const read = () => Api.abilities({ metadata: { signature_def: { signature_def } } });
  assert.equal(read().layers, 6);
  assert.equal(read().compressed, false);
  assert.equal(read().effective, false);
  assert.equal(read().text, false);
  signature_def.attention = { outputs: { attention: dim(-1, 6, 12, -1, 32) } };
  assert.equal(read().compressed, true);
  assert.equal(Api.abilities({}).stacked, null);
});

test("inputs that met others in a batch are sent again, five times", async () => {
  let calls = 0;
  const session = new Session();
  const refuse = (times, said) => {
    calls = 0;
    const predict = async () => {
      if (calls++ < times) throw new ApiError("The server refused the request.", `It says: ${said}`, 400);
      return "answer";
    };
    session.server = { predict };
  };
  const mixed = "Tensors with name 'x' from different tasks have different shapes and padding is turned off.";
  refuse(5, mixed);
  assert.equal(await session.predict("attention", {}), "answer");
  assert.equal(calls, 6);
  refuse(6, mixed);
  await assert.rejects(session.predict("attention", {}), /refused/);
  refuse(1, "token_ids must be from 0 to 9");
  await assert.rejects(session.predict("attention", {}), /refused/);
  assert.equal(calls, 1);
});

test("null is raw minus effective, and the mean is over heads", () => {
  const raw = [[[0.5, 0.5], [1, 0]], [[0.25, 0.75], [0, 1]]];
  const effective = [[[0.5, 0.25], [1.25, -0.5]], [[0, 0.75], [0, 1]]];
  const layer = new Maps.Layer(raw, effective);
  assert.deepEqual([...layer.map("null", 0).data], [0, 0.25, -0.25, 0.5]);
  assert.deepEqual([...layer.map("raw", "mean").data], [0.375, 0.625, 0.5, 0.5]);
  const range = layer.map("effective", 0).range([0, 1], [0, 1]);
  assert.deepEqual([range.low, range.high, range.lowSum, range.highSum], [-0.5, 1.25, 0.75, 0.75]);
  assert.equal(new Maps.Layer([[[null, 1]]]).map("raw", 0).range([0], [0, 1]).missing, 1);
  assert.throws(() => new Maps.Layer([[[1, 2], [3]]]), /ragged/);
});

test("padding and special tokens can be left out, compressed keys cannot", () => {
  const input = { tokens: ["[CLS]", "a", "[SEP]", "[PAD]"], paddingMask: [1, 1, 1, 0] };
  const shown = (hide, keys = 4) => plain(Maps.visible(input, 4, keys, hide));
  assert.deepEqual(shown({ padding: true }), { rows: [0, 1, 2], columns: [0, 1, 2] });
  assert.deepEqual(shown({ special: true }), { rows: [1], columns: [1] });
  assert.deepEqual(shown({ special: true }, 2), { rows: [1], columns: [0, 1] });
  input.compressed = true;
  assert.deepEqual(shown({ special: true }), { rows: [1], columns: [0, 1, 2, 3] });
});

test("the shortest decimal of a float32 is that float32", () => {
  assert.equal(Maps.exact(Math.fround(0.1)), "0.1");
  assert.equal(Maps.exact(NaN), "NaN");
  for (let i = 0, value = 1; i < 2000; i++) {
    value = Math.fround(Math.sin(i * 12.9898) * 10 ** ((i % 13) - 9));
    assert.equal(Math.fround(Number(Maps.exact(value))), value);
  }
});

test("the scale is centred on zero and full at its limit", () => {
  const scale = new Colours.Scale(2, "linear", "light");
  assert.deepEqual([...scale.rgb(0)], [255, 255, 255]);
  assert.deepEqual([...scale.rgb(2)], [...scale.rgb(5)]);
  assert.notDeepEqual([...scale.rgb(1)], [...scale.rgb(-1)]);
  assert.equal(scale.strength(-1), 0.5);
  assert.equal(new Colours.Scale(2, "root", "dark").strength(0.5), 0.5);
  assert.equal(new Colours.Scale(1e-9, "linear", "light").limit, Colours.LEAST);
});

test("a state survives the address, and an address that makes no sense does no harm", () => {
  const state = {
    ...State.DEFAULTS,
    model: "a&b=c#d",
    text: "100% <b>ä</b>\n+ 😀",
    pair: "second",
    layer: 3,
    head: "mean",
    kind: "null",
    mode: "difference",
    withHead: 4,
    token: 0,
    zoom: -2,
    hidePadding: false,
    theme: "dark",
  };
  assert.deepEqual(plain(State.read(`#${State.write(state)}`)), plain(state));
  const strange = State.read("#layer=-4&head=1e9&kind=evil&mode=&zoom=Infinity&token=x&theme=__proto__&scale=all");
  assert.deepEqual(plain(strange), { ...plain(State.DEFAULTS), scale: "all" });
  assert.deepEqual([...State.numbers("1, 2\n3", "ids")], [1, 2, 3]);
  assert.throws(() => State.numbers("1 2.5", "ids"), /"2.5" in ids/);
});

test("a CSV holds every value, and no cell is a formula", () => {
  const map = new Maps.AttentionMap(Float32Array.of(0.1, -1.5, NaN, 2), 2, 2);
  const tokens = ["=SUM(A1)", 'a,"b"'];
  const edges = { rows: [0, 1], columns: [0, 1], rowTokens: tokens, columnTokens: tokens };
  const figure = { layer: 1, head: 2, kind: "raw", map, ...edges };
  assert.equal(
    Downloads.csv([figure]),
    'layer,head,kind,query,1:=SUM(A1),"2:a,""b"""\r\n1,2,raw,1:=SUM(A1),0.1,-1.5\r\n1,2,raw,"2:a,""b""",NaN,2\r\n',
  );
});

test("classes have the names that are written, then the model's, then numbers", () => {
  assert.deepEqual(plain(Panels.names(2, "no, yes", { labels: ["a", "b"] })), ["no", "yes"]);
  assert.deepEqual(plain(Panels.names(2, "", { labels: ["a", "b"] })), ["a", "b"]);
  assert.deepEqual(plain(Panels.names(3, "x", {})), ["x", "1", "2"]);
  assert.deepEqual(plain(Panels.names(2, "", { task: "span" })), ["start", "end"]);
  const perToken = { shape: [2, 3], data: Float32Array.of(1, 2, 3, 4, 5, 6) };
  assert.deepEqual(plain(Panels.readLogits(perToken, 1).values), [4, 5, 6]);
  const shares = Panels.softmax([1000, 1000]);
  assert.deepEqual(plain(shares), [0.5, 0.5]);
});

test("the mean of heads comes before the first head", () => {
  assert.equal(Controls.nextHead(0, -1), "mean");
  assert.equal(Controls.nextHead("mean", 1), 0);
  assert.equal(Controls.nextHead("mean", -1), "mean");
  assert.equal(Controls.nextHead(3, 0), 3);
});
