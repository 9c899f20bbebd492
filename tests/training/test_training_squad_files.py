"""SQuAD's JSON in its dialects, and what is wrong with it, named by file and line or question."""

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from training.data import squad, tables
from training.data.cross_lingual import Source

CONTEXT = "The Panthers gave up just 308 points."


def squad_file(folder, qas, name="train-v1.1.json", context=CONTEXT):
    file = folder / name
    text = json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]})
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return file


def asked(name="q1", answers=(("308", 26),), **more):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": " How many? ", "answers": answers, **more}


@pytest.mark.parametrize("name", ["train-v1.1.json", "train-v1.1.json.gz"])
def test_questions(tmp_path, name):
    file = squad_file(tmp_path, [asked(), asked("q2", [("Panthers", 4), ("The Panthers", 0)])], name)
    first, second = squad.read(file)
    assert (first.id, first.question, first.context) == ("q1", "How many?", CONTEXT)
    assert first.answers == [("308", 26)] and second.answers == [("Panthers", 4), ("The Panthers", 0)]


def test_impossible_questions_have_no_answers(tmp_path):
    qas = [asked(is_impossible=True, plausible_answers=[]), asked("q2", (), is_impossible=True), asked("q3", ())]
    assert [question.answers for question in squad.read(squad_file(tmp_path, qas))] == [[], [], []]


def test_a_question_repeated_for_each_answer_is_one_question(tmp_path):
    (question,) = squad.read(squad_file(tmp_path, [asked(), asked(answers=[("308 points", 26)])]))
    assert question.answers == [("308", 26), ("308 points", 26)]


@pytest.mark.parametrize(
    ("entry", "where", "expected", "received"),
    [
        (asked("bad", [("308", 25)]), "bad", "the answer '308' at character 25", "' 30'"),
        (asked("bad", [("308", -11)]), "bad", "at character -11", ""),
        (asked("bad", [("308", 400)]), "bad", "at character 400", "''"),
        (asked("bad", [("", 3)]), "bad", "'text' and 'answer_start'", "''"),
        ({"id": "bad", "answers": []}, "bad", "a text as 'question'", "'None'"),
        ({"id": "bad", "question": "?", "answers": "308"}, "bad", "a list as 'answers'", "308"),
        ({"question": "?"}, "data[0].paragraphs[0].qas[1]", "a text as 'id'", "'None'"),
        ("text", "data[0].paragraphs[0].qas[1]", "a question", "text"),
        ({**asked(), "question": "Another?"}, "q1", "ids that differ", "two questions"),
    ],
)
def test_bad_questions_are_named(tmp_path, entry, where, expected, received):
    file = squad_file(tmp_path, [asked(), entry])
    message = f"{file}:{where}: .*{re.escape(expected)}.*{re.escape(received)}"
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace(r"\\[", r"\[")):
        squad.read(file)
    problems = tables.Problems("skip")
    assert [question.id for question in squad.read(file, on_error=problems)] == ["q1"]
    assert {(source, line) for source, line, _ in problems.found} == {(str(file), where)}


def test_where_answers_are_hidden_the_message_says_which_files_have_them(tmp_path):
    """XTREME gives out its test sets with an empty text at character 0."""
    file = squad_file(tmp_path, [asked(answers=[("", 0)])])
    with pytest.raises(ValueError, match="XTREME's own test files hide the answers: use those of the benchmark"):
        squad.read(file)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        (b'{"data": [\n{"paragraphs": [\n}', 3, "expected JSON, received '}' at column 1"),
        (b"", 1, "expected JSON"),
        (b'{"data":\n "caf\xe9"}', 2, r"expected UTF-8, received b'\\xe9'"),
        (gzip.compress(mtime=0, data=b'{"data": []}')[:-9], 1, "the gzip data end or break"),
    ],
)
def test_wrong_json(tmp_path, text, line, expected):
    file = tmp_path / "dev.json"
    file.write_bytes(text)
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}:{line}: .*{expected}"):
        squad.read(file)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"questions": []}, "a list 'data' at top level .* received .'questions'"),
        ([], "a list 'data' at top level"),
        ({"data": [{"title": "x"}]}, r"a list 'paragraphs' at data\[0\]"),
        ({"data": [{"paragraphs": [{"context": "x"}]}]}, r"a list 'qas' at data\[0\].paragraphs\[0\]"),
        ({"data": []}, "expected questions, received none"),
    ],
)
def test_json_of_another_format(tmp_path, data, expected):
    file = tmp_path / "dev.json"
    file.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}: .*{expected}"):
        squad.read(file)


def test_byte_order_mark_and_file_names(tmp_path):
    file = squad_file(tmp_path, [asked()], "xquad.de.json")
    file.write_bytes(tables.BOM + file.read_bytes())
    assert len(Source("xquad", tmp_path, train=False).load("de")) == 1
    with pytest.raises(FileNotFoundError, match="xquad.en.json"):
        Source("xquad", tmp_path, ["en"], train=False)
    with pytest.raises(ValueError, match="Unknown benchmark 'quac'. Known: xnli, xquad"):
        Source("quac", tmp_path)


@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
@pytest.mark.parametrize(
    ("benchmark", "split", "language", "count"),
    [
        ("xquad", "test", "zh", 1190),
        ("mlqa", "dev", "en", 1148),
        ("mlqa", "dev", "de", 512),
        ("tydiqa", "train", "en", 3696),
        ("tydiqa", "train", "sw", 2755),
    ],
)
def test_real_files_have_the_official_number_of_questions(benchmark, split, language, count):
    source = Source(benchmark, os.environ["KERAS_POSENC_DATA"], [language], split, train=False)
    assert len(source.load(language)) == count


@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
def test_a_real_file_of_squads_format():
    file = Path(os.environ["KERAS_POSENC_DATA"]) / "squadshifts" / "new_wiki_v1.0.json"
    assert len(squad.read(file)) == 7938
