"""What the page says is what was found: tables, winners, and how small it was."""

import numpy as np

from serving.demoing import page, plots, words
from serving.demoing.settings import Settings


def row(position, test, longer, **more):
    found = dict(positions=position, runs=1, score=test, test=test, longer=longer, parameters=215000)
    return {**found, "position_parameters": 1664, **more}


ROWS = [row("learned", 0.936, 0.531), row("tisa", 0.925, 0.865), row("bag_of_words", 0.5, 0.5)]
WAY = {"p50": 1.5, "p95": 2.0, "p99": 3.0, "p50_interval": [1.4, 1.6]}
FOUND = {
    "train": {"rows": ROWS, "steps": 1200, "batch": 32},
    "serve": {
        "latency": {name: {way: WAY for way in ("in process", "grpc", "rest")} for name in ("learned", "tisa")},
        "differences": {"learned": {"grpc": 2e-7, "rest": 3e-7}},
        "tokens": 26,
    },
    "real": {"installed": False, "requirement": "weights==1"},
}


def test_a_row_of_the_table_has_scores_sizes_and_latency_where_there_is_some():
    learned, tisa, bag = page.summary_rows(FOUND)
    assert (tisa["test"], tisa["longer"], tisa["of positions"]) == ("0.925", "0.865", "1,664")
    assert learned["grpc p50 ms"] == "1.50" and bag["grpc p50 ms"] == "" and "step time" not in learned
    timed = {**FOUND, "train": {"rows": [{**each, "step_time_ratio": 1.1} for each in ROWS]}}
    assert page.summary_rows(timed)[0]["step time"] == "1.10"


def test_latencies_are_a_row_for_each_model_with_ratios_where_there_is_a_baseline():
    (row,) = page.latency_rows({"tisa": FOUND["serve"]["latency"]["tisa"]})
    assert (row["grpc p50"], row["rest p95"]) == ("1.50", "2.00") and "grpc, of learned" not in row
    compared = {**WAY, "ratio": {"value": 1.01, "interval": [0.98, 1.04]}}
    (row,) = page.latency_rows({"tisa": {way: compared for way in ("in process", "grpc", "rest")}})
    assert row["grpc, of learned"] == "1.01 [0.98, 1.04]"


def test_the_summary_names_who_is_right_most_often_and_that_one_run_is_one_run():
    said = words.in_short(FOUND)
    assert "learned is right most often (0.936); on longer ones, tisa is right most often (0.865)" in said
    tied = {**FOUND, "train": {"rows": [row("learned", 0.9, 0.6), row("tisa", 0.9, 0.5)]}}
    assert "learned and tisa are right most often (0.900)" in words.in_short(tied)
    assert "A bag of words, which does not see the order, has 0.500" in said and "to 3e-07" in said
    assert "One run of each" in said
    three = [{**each, "runs": 3} for each in ROWS]
    assert "One run of each" not in words.in_short({**FOUND, "train": {"rows": three}})


def test_the_page_says_what_was_small_and_what_is_not_installed():
    about = {"settings": Settings(), "seconds": {"train": 200.4}, "folder": "out"}
    said = words.small(
        {**FOUND, "train": {**FOUND["train"], "sizes": dict(num_layers=4, hidden_dim=64, num_heads=4)}}, about
    )
    for part in ("4 layers of width 64", "1200 steps of 32", "pip install --no-deps weights==1", "train 200 s"):
        assert part in said
    commands = words.commands(about)
    assert "make serve\n" in commands and "--model_config_file=out/models.config" in commands
    assert "--positions=learned,shaw,t5,tupe_rel,tisa,diet_rel,diet_abs " in commands


def test_commands_on_the_page_are_escaped():
    made = page.DemoPage("t", "s")
    made.section("a")
    made.code("a < b && c")
    assert "a &lt; b &amp;&amp; c</pre>" in made.html()


def test_a_picture_has_a_panel_for_each_head_and_no_mean_of_rows(rng):
    arrays = {"learned": rng.normal(size=(1, 6, 6)), "tisa": rng.normal(size=(2, 6, 6)) + 5.0}
    figure = plots.pictures(arrays, 4)
    images = [image.get_array() for axes in figure.axes for image in axes.images]
    assert len(images) == 3
    np.testing.assert_allclose([np.mean(image, axis=1) for image in images], 0.0, atol=1e-12)
    assert plots.png(figure).startswith(b"\x89PNG")


def test_the_study_is_told_with_its_figures_where_texts_are_longer_than_heads():
    lengths = [{"tokens": 14, "null_dimension": 0.0, "correlation": 1.0}]
    told = {"position": "tisa", "head_size": 16, "lengths": lengths}
    assert "dimensions are lost" not in words.study(told) and "1.000 or more" in words.study(told)
    lengths.append({"tokens": 26, "null_dimension": 10.0, "correlation": 0.51})
    said = words.study(told)
    assert "At 26 tokens 10 dimensions are lost" in said and "0.51" in said and "A head of 16" in said
