"""Records through tensorflow_datasets: from a data set prepared on the spot, and from the examples of each family."""

import numpy as np
import pytest

from training.data import tables, tfds

SQUAD = {"id": "q", "title": "t", "context": "In 1984 he left.", "question": "When?"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """`glue/mrpc` with three examples, prepared as the official builder would."""
    theirs = pytest.importorskip("tensorflow_datasets")
    folder = tmp_path_factory.mktemp("data")
    rows = [("a « b", "c", "equivalent"), ("d ", "e", "not_equivalent"), ("f", "g", "equivalent")]
    with theirs.core.registered.skip_registration():

        class Glue(theirs.core.GeneratorBasedBuilder):
            VERSION = theirs.core.Version("2.0.0")
            BUILDER_CONFIGS = [theirs.core.BuilderConfig(name="mrpc")]

            def _info(self):
                names = ["not_equivalent", "equivalent"]
                text, label = theirs.features.Text(), theirs.features.ClassLabel(names=names)
                features = {"sentence1": text, "sentence2": text, "label": label, "idx": np.int32}
                return theirs.core.DatasetInfo(builder=self, features=theirs.features.FeaturesDict(features))

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples(rows), "test": self._generate_examples(rows[:1], True)}

            def _generate_examples(self, rows, unlabelled=False):
                for index, (first, second, label) in enumerate(rows):
                    label = -1 if unlabelled else label
                    yield index, {"sentence1": first, "sentence2": second, "label": label, "idx": index}

    Glue(data_dir=folder, config="mrpc").download_and_prepare()
    return folder


@pytest.mark.integration
def test_a_prepared_data_set_is_read_by_name(prepared):
    data = tfds.load("glue/mrpc", "train", data_dir=prepared)
    assert sorted(zip(data.first, data.second, data.labels.tolist())) == [
        ("a « b", "c", 1),
        ("d", "e", 0),
        ("f", "g", 1),
    ]
    assert data.label_names == ("not_equivalent", "equivalent")
    assert len(tfds.load("glue/mrpc", "train[:2]", data_dir=prepared)) == 2
    assert tfds.load("glue/mrpc", "test", data_dir=prepared).labels is None
    with pytest.raises(ValueError, match="has no split 'dev'. It has: .*train"):
        tfds.load("glue/mrpc", "dev", data_dir=prepared)


@pytest.mark.integration
def test_every_part_of_a_split_is_looked_for(prepared):
    assert len(list(tfds.examples("glue/mrpc", "train[:2]+test", prepared))) == 3
    for split in ("train[:2]+nonsense", "nonsense+train"):
        with pytest.raises(ValueError, match="has no split 'nonsense'"):
            tfds.builder("glue/mrpc", split, prepared)


@pytest.mark.integration
def test_what_is_not_prepared_is_not_downloaded(tmp_path):
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(FileNotFoundError, match="squad/v1.1 is not prepared in .*tfds build squad/v1.1 --data_dir"):
        tfds.load("squad/v1.1", "train", data_dir=tmp_path)
    assert not list(tmp_path.rglob("*.*"))


def test_names_are_checked_before_anything_is_read():
    for name in ("mnist", "glue/ax"):
        with pytest.raises(ValueError, match="Known: "):
            tfds.load(name, "train")
    with pytest.raises(ValueError, match="xnli has many languages: expected `language`"):
        tfds.load("xnli", "test")
    with pytest.raises(ValueError, match="expected `source` and `target`"):
        tfds.load("wmt18_translate/de-en", "train")


@pytest.mark.parametrize(
    ("name", "example", "texts"),
    [
        ("glue/sst2", {"sentence": "fine ", "label": 1, "idx": 0}, "fine"),
        ("glue/cola", {"sentence": "fine", "label": 1, "idx": 0}, "fine"),
        ("glue/qqp", {"question1": "a", "question2": "b", "label": 1, "idx": 0}, ("a", "b")),
        ("glue/qnli", {"question": "a", "sentence": "b", "label": 1, "idx": 0}, ("a", "b")),
        ("glue/mnli", {"premise": "a", "hypothesis": "b", "label": 1, "idx": 0}, ("a", "b")),
        ("glue/mnli_mismatched", {"premise": "a", "hypothesis": "b", "label": 1, "idx": 0}, ("a", "b")),
        ("glue/stsb", {"sentence1": "a", "sentence2": "b", "label": 1.0, "idx": 0}, ("a", "b")),
        ("glue/rte", {"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0}, ("a", "b")),
    ],
)
def test_examples_of_glue(name, example, texts):
    data = tfds.converter(name)([example], source_name=name)
    assert data.texts == [texts] and data.labels.tolist() == [1]


def test_the_names_of_classes_are_in_the_same_order():
    """Else a model trained on files would be scored wrongly on a data set."""
    theirs = pytest.importorskip("tensorflow_datasets")
    from training.data import glue

    for name, task in glue.TASKS.items():
        classes = theirs.builder_cls("glue").builder_configs[name].label_classes
        assert (tuple(classes) if classes else None) == task.label_names, name


def test_examples_of_xnli():
    hypothesis = {"language": np.array([b"de", b"en"], object), "translation": np.array([b"ja", b"yes"], object)}
    example = {"premise": {"de": b"gut", "en": b"good"}, "hypothesis": hypothesis, "label": np.int64(2)}
    data = tfds.converter("xnli", language="en")(map(tfds.plain, [example]), source_name="xnli")
    assert data.texts == [("good", "yes")] and data.labels.tolist() == [2]
    with pytest.raises(ValueError, match="xnli has no language 'fr'. It has: de, en"):
        tfds.converter("xnli", language="fr")(map(tfds.plain, [example]), source_name="xnli")


def test_examples_of_squad():
    answers = {"text": np.array([b"1984"], object), "answer_start": np.array([3], "int32")}
    example = {key: value.encode() for key, value in SQUAD.items()} | {"answers": answers}
    (question,) = tfds.converter("squad/v1.1")(map(tfds.plain, [example]), source_name="squad")
    assert (question.id, question.context, question.answers) == ("q", SQUAD["context"], [("1984", 3)])
    (question,) = tfds.converter("squad/v2.0")([{**tfds.plain(example), "is_impossible": True}], source_name="squad")
    assert question.answers == []
    moved = {**SQUAD, "answers": {"text": ["1984"], "answer_start": [4]}}
    with pytest.raises(ValueError, match="squad:q: expected the answer '1984' at character 4.*'984 '"):
        tfds.converter("xquad/en")([moved], source_name="squad")
    problems = tables.Problems("skip")
    assert tfds.converter("xquad/en")([moved], source_name="squad", on_error=problems) == []
    assert len(problems.found) == 1


def test_examples_of_translations_and_documents():
    examples = [{"en": "one ", "de": "eins"}, {"en": "", "de": "zwei"}]
    problems = tables.Problems()
    convert = tfds.converter("wmt18_translate/de-en", source="en", target="de")
    pairs = convert(examples, source_name="wmt", on_error=problems)
    assert (pairs.source, pairs.target) == (["one"], ["eins"]) and problems.found[0][:2] == ("wmt", 2)
    with pytest.raises(ValueError, match="wmt has no language 'cs'. It has: en, de"):
        tfds.converter("wmt18_translate/de-en", source="en", target="cs")(examples, source_name="wmt")
    documents = tfds.converter("wikipedia/20230601.en")([{"title": "t", "text": "a b"}], source_name="wikipedia")
    assert list(documents) == ["a b"]
