"""Batches of several requests: that they form, how they are padded, and what is refused."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest
import serving_models

from serving.server import batching, protos, waiting
from serving.server.batching import Parameters
from serving.server.errors import ServingError
from serving.server.loading import Loader
from serving.server.servable import Servable

TASKS = "/proc/self/task"
FOREVER = 600_000_000  # microseconds: a batch runs when it is full, however slowly its requests come


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """The model with the signatures of these tests only, which loads faster."""
    return str(serving_models.save(tmp_path_factory.mktemp("batched_model") / "1", 2.0, ("seen", "work")))


@pytest.fixture
def load(saved_model, request):
    def load(**parameters):
        given = {"num_batch_threads": 2, "max_batch_size": 8, "batch_timeout_micros": FOREVER, **parameters}
        servable = Servable(saved_model, Parameters(**given))
        request.addfinalizer(servable.close)
        return servable

    return load


def together(servable, requests, signature="seen", output_filter=()):
    """Results or errors of requests made at the same time."""
    results, barrier = [None] * len(requests), threading.Barrier(len(requests))

    def call(index, inputs):
        barrier.wait()
        try:
            results[index] = servable.run(signature, inputs, output_filter)
        except ServingError as error:
            results[index] = error

    threads = [threading.Thread(target=call, args=item) for item in enumerate(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def ids(*shape, value=1):
    return {"ids": np.full(shape, value, np.int32), "weight": np.full(shape[0], float(value), np.float32)}


def test_requests_run_as_one_batch_and_get_their_own_rows(load):
    results = together(load(max_batch_size=4), [ids(1, 3, value=i) for i in range(4)])
    for i, found in enumerate(results):
        assert found["rows"].tolist() == [4]
        assert found["sums"].tolist() == [3 * i] and found["weight"].tolist() == [i]


def test_without_waiting_a_request_runs_alone(load):
    assert load(batch_timeout_micros=0).run("seen", ids(1, 3))["rows"].tolist() == [1]


def test_signatures_and_output_sets_have_queues_of_their_own(load):
    servable = load(max_batch_size=2)
    results = [None, None]

    def call(index, names):
        results[index] = together(servable, [ids(1, 3)] * 2, "seen", names)

    threads = [threading.Thread(target=call, args=(i, names)) for i, names in enumerate((["rows"], ["rows", "sums"]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in results[0] + results[1]:
        assert found["rows"].tolist() == [2]
    assert list(results[0][0]) == ["rows"] and set(results[1][0]) == {"rows", "sums"}


def test_two_models_never_share_a_batch(load, other_model):
    one, two = load(max_batch_size=2), Servable(other_model, Parameters(2, FOREVER, 10, 2))
    row = {"x": np.ones((1, 3), np.float32)}
    found = [None] * 4

    def call(index):
        found[index] = (one, two)[index % 2].run("", row)["y"][0, 0]

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    two.close()
    assert found == [2.0, 5.0, 2.0, 5.0]


def test_batches_are_padded_to_allowed_sizes(load):
    servable = load(allowed_batch_sizes=(1, 5, 8), batch_timeout_micros=0)
    assert servable.run("seen", ids(3, 3))["rows"].tolist() == [5, 5, 5]
    assert servable.run("seen", ids(1, 3))["rows"].tolist() == [1]


def test_too_large_for_a_batch(load):
    with pytest.raises(ServingError, match="Task size 9 is larger than maximum input batch size 8") as caught:
        load().run("seen", ids(9, 3))
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(("allowed", "largest"), [((), 4), ((2, 4), 4)])
def test_large_requests_are_split(load, allowed, largest):
    servable = load(
        max_batch_size=16,
        enable_large_batch_splitting=True,
        max_execution_batch_size=4,
        allowed_batch_sizes=allowed,
        batch_timeout_micros=1000,
    )
    given = ids(10, 2)
    given["ids"][:, 0] = np.arange(10)
    found = servable.run("seen", given)
    assert found["sums"].tolist() == list(range(1, 11))
    assert max(found["rows"]) == largest


def test_over_capacity_is_unavailable_and_passes(load):
    servable = load(max_batch_size=1, max_enqueued_batches=1, num_batch_threads=1, batch_timeout_micros=0)
    results = together(servable, [{"steps": np.array([150], np.int32)}] * 8, "work")
    failed = [result for result in results if isinstance(result, ServingError)]
    assert failed and len(failed) < 8
    for error in failed:
        assert (error.code, error.http_status) == ("UNAVAILABLE", 503)
        assert "The batch scheduling queue to which this task was submitted is full" in error.message
    assert servable.run("work", {"steps": np.array([1], np.int32)})["done"].shape == (1,)


def test_lengths_that_differ_need_padding(load):
    results = together(load(max_batch_size=2), [ids(1, 3), ids(1, 5)])
    for error in results:
        assert error.code == "FAILED_PRECONDITION"
        assert "have different shapes and padding is turned off" in error.message


def test_padding_repeats_the_first_element_of_each_request(load):
    servable = load(max_batch_size=3, pad_variable_length_inputs=True)
    short = {"ids": np.array([[7, 1], [8, 2]], np.int32), "weight": np.ones(2, np.float32)}
    results = together(servable, [short, ids(1, 4, value=2)])
    assert results[0]["columns"].tolist() == [4, 4] and results[0]["rows"].tolist() == [3, 3]
    # Both rows are padded with 7, the first element of the request's tensor, not of the row.
    assert results[0]["sums"].tolist() == [7 + 1 + 2 * 7, 8 + 2 + 2 * 7]
    assert results[1]["sums"].tolist() == [8]


def test_padding_lays_out_inner_dimensions():
    one, two = np.arange(1, 7).reshape(1, 2, 3), np.arange(10, 18).reshape(1, 4, 2)

    queue = batching.Queue(lambda arrays: arrays, ["x"], Parameters(2, FOREVER, 10, 1, (), True))
    found = [None, None]

    def call(index, value):
        found[index] = queue.run([value])[0]

    threads = [threading.Thread(target=call, args=item) for item in enumerate((one, two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.close()
    np.testing.assert_array_equal(found[0], np.pad(one, ((0, 0), (0, 2), (0, 0)), constant_values=1))
    np.testing.assert_array_equal(found[1], np.pad(two, ((0, 0), (0, 0), (0, 1)), constant_values=10))


@pytest.fixture
def queue(request):
    def queue(function, **parameters):
        given = {"num_batch_threads": 2, "max_batch_size": 4, "batch_timeout_micros": 0, **parameters}
        found = batching.Queue(function, ["x"], Parameters(**given))
        request.addfinalizer(found.close)
        return found

    return queue


def rows(number, value=0.0):
    return [np.full((number, 2), value, np.float32)]


def test_a_batch_is_run_in_time_while_another_is_running(queue):
    started, finish = threading.Event(), threading.Event()

    def function(arrays):
        if arrays[0][0, 0] == 1:
            started.set()
            assert finish.wait(30)
        return arrays

    waiting = queue(function, batch_timeout_micros=50_000)
    slow = threading.Thread(target=waiting.run, args=(rows(1, 1),))
    slow.start()
    assert started.wait(30)
    assert waiting.run(rows(3, 2))[0].tolist() == rows(3, 2)[0].tolist()
    assert slow.is_alive()
    finish.set()
    slow.join()


def test_a_failure_reaches_all_of_its_batch_and_no_other(queue):
    def function(arrays):
        if arrays[0].max() == 1:
            raise ValueError("one")
        return arrays

    failing = queue(function, max_batch_size=2, batch_timeout_micros=FOREVER)
    for value in (1, 2, 1):
        found = [None, None]

        def call(index, value=value, found=found):
            try:
                found[index] = failing.run(rows(1, value))[0].tolist()
            except ServingError as error:
                found[index] = error.message

        threads = [threading.Thread(target=call, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["ValueError: one" if value == 1 else [[2, 2]]] * 2


def test_idle_threads_hold_nothing_of_their_last_batch(queue):
    held = []

    def function(arrays):
        outputs = [arrays[0] + 1]
        held.extend(weakref.ref(array) for array in (*arrays, *outputs))
        return outputs

    waiting = queue(function, num_batch_threads=1)
    waiting.run(rows(1))
    serving_models.until(lambda: [reference() for reference in held] == [None, None], 5)


def test_a_failure_holds_nothing_of_its_batch(queue):
    given = rows(1)
    held = weakref.ref(given[0])
    gc.collect()
    gc.disable()  # the inputs should not have to wait for it
    try:
        try:
            queue(lambda arrays: [arrays[0][:0]]).run(given)
        except ServingError as error:
            assert error.code == "FAILED_PRECONDITION"
        del given
        serving_models.until(lambda: held() is None, 5)
    finally:
        gc.enable()


def test_one_result_does_not_hold_those_of_the_whole_batch(queue):
    held, found = [], [None, None]

    def function(arrays):
        outputs = [arrays[0] + 1]
        held.append(weakref.ref(outputs[0]))
        return outputs

    waiting = queue(function, max_batch_size=2, batch_timeout_micros=FOREVER)

    def call(index):
        found[index] = waiting.run(rows(1, index))[0]

    threads = [threading.Thread(target=call, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.tolist() for each in found] == [[[1, 1]], [[2, 2]]]
    serving_models.until(lambda: held[0]() is None, 5)


def test_a_batch_that_nobody_waits_for_is_not_run(queue):
    ran = []

    def function(arrays):
        ran.append(len(arrays[0]))
        return arrays

    alone = queue(function, max_batch_size=1)
    with waiting.asked(lambda: False), pytest.raises(ServingError, match="exceeded while waiting in batch") as caught:
        alone.run(rows(1))
    assert caught.value.code == "RESOURCE_EXHAUSTED" and not ran
    assert alone.run(rows(1))[0].shape == (1, 2)  # the thread has forgotten that request

    shared, found = queue(function, max_batch_size=2, batch_timeout_micros=FOREVER), []

    def call(is_waiting):
        with waiting.asked(is_waiting):
            found.append(shared.run(rows(1))[0].shape)

    threads = [threading.Thread(target=call, args=(lambda answer=answer: answer,)) for answer in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(1, 2)] * 2 and ran == [1, 2]


def test_results_need_the_rows_of_the_batch(queue):
    for function, message in (
        (lambda arrays: [arrays[0][:1]], "0th dimension does not equal the sum"),
        (lambda arrays: [arrays[0].sum()], "has 0 dimensions"),
    ):
        with pytest.raises(ServingError, match=message) as caught:
            queue(function).run(rows(2))
        assert caught.value.code == "FAILED_PRECONDITION"


def test_requests_without_rows(queue):
    found = queue(lambda arrays: arrays, allowed_batch_sizes=(2, 4)).run(rows(0))
    assert found[0].shape == (0, 2)


def test_a_request_that_does_not_fit_the_queue_is_not_split(queue):
    splitting = queue(
        lambda arrays: arrays,
        max_batch_size=9,
        max_enqueued_batches=2,
        enable_large_batch_splitting=True,
        max_execution_batch_size=4,
    )
    with pytest.raises(ServingError, match="task size is 9 but scheduling capacity is only 8") as caught:
        splitting.run(rows(9))
    assert caught.value.code == "UNAVAILABLE"
    given = [np.arange(16, dtype=np.float32).reshape(8, 2)]
    np.testing.assert_array_equal(splitting.run(given)[0], given[0])


def test_inputs_need_the_same_batch_in_front(load):
    servable = load()
    wrong = {"ids": np.ones((2, 3), np.int32), "weight": np.ones(1, np.float32)}
    with pytest.raises(ServingError, match="must have equal 0th-dimension size"):
        servable.run("seen", wrong)


@pytest.mark.skipif(not os.path.exists(TASKS), reason="counts the threads as Linux shows them")
def test_batch_threads_go_with_the_version(saved_model):
    before = len(os.listdir(TASKS))
    servable = Servable(saved_model, Parameters(3, 0, 3, 40))
    servable.run("seen", ids(1, 2))
    servable.run("seen", ids(1, 2), ["rows"])
    assert 40 <= len(os.listdir(TASKS)) - before < 80
    servable.close()
    serving_models.until(lambda: len(os.listdir(TASKS)) - before < 40)


def read(text, tmp_path):
    (tmp_path / "b").write_text(text)
    return batching.parameters(protos.read_text(tmp_path / "b", protos.BatchingParameters()))


def test_parameters_file(tmp_path):
    found = read(
        """max_batch_size { value: 128 } batch_timeout_micros { value: 5 } max_enqueued_batches { value: 100 }
        num_batch_threads { value: 3 } allowed_batch_sizes: 1 allowed_batch_sizes: 128
        pad_variable_length_inputs: true""",
        tmp_path,
    )
    assert found == Parameters(128, 5, 100, 3, (1, 128), True)
    assert read("", tmp_path) == Parameters()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_batch_size { value: 0 }", "max_batch_size must be at least 1"),
        ("num_batch_threads { value: 0 }", "num_batch_threads must be positive"),
        ("max_batch_size { value: 8 } allowed_batch_sizes: 4", "Last entry in allowed_batch_sizes must match"),
        ("max_batch_size { value: 2 } allowed_batch_sizes: [2, 2]", "in increasing order"),
        ("max_batch_size: 8", "1:17"),
        ("\n\nmax_batch { value: 8 }", "3:1"),
    ],
)
def test_mistakes_in_the_parameters_file_are_named(tmp_path, text, message):
    with pytest.raises((ServingError, ValueError), match=message):
        read(text, tmp_path)


def test_parameters_of_one_model(base_path):
    loader = Loader(Parameters(), per_model_batching=True, warm_up=False)
    (base_path / "1" / "batching_params.pbtxt").write_text("max_batch_size { value: 2 }")
    servable = loader.load(str(base_path / "1"))
    with pytest.raises(ServingError, match="larger than maximum input batch size 2"):
        servable.run("seen", ids(3, 3))
    (base_path / "1" / "batching_params.pbtxt").write_text("max_batch_size: 2")
    with pytest.raises(ServingError, match="batching_params.pbtxt is no BatchingParameters: 1:17"):
        loader.load(str(base_path / "1"))
    (base_path / "1" / "batching_params.pbtxt").unlink()
    assert loader.load(str(base_path / "1")).run("seen", ids(3, 3))["rows"].tolist() == [3, 3, 3]
