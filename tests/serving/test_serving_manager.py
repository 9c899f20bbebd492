"""Versions come and go: policies, corrupt versions, labels, reloads, and nobody notices."""

import shutil
import threading

import pytest
import serving_models
from serving_models import ROW, add_version, break_version, config, until

from serving.server import versions, warmup
from serving.server.errors import ServingError
from serving.server.handlers import Handlers, Target
from serving.server.loading import Loader


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """The model with one signature only, which loads fast."""
    return str(serving_models.save(tmp_path_factory.mktemp("small_model") / "1", 2.0, ()))


@pytest.fixture
def start(request):
    """Starts managers, and stops them after the test."""

    def start(*arguments, **options):
        manager = serving_models.manager(**options)
        request.addfinalizer(manager.stop)
        manager.start(*arguments, timeout=30)
        return manager

    return start


def predict(manager, *target):
    """Factor and version of the model that answers."""
    outputs, version, _ = Handlers(manager).predict(Target(*target), "", {"x": ROW})
    return float(outputs["y"][0, 0]), version


def states(manager, name="m"):
    return {version: state for version, state, _ in manager.states(Target(name))}


def refused(code, call, *arguments):
    with pytest.raises(ServingError) as caught:
        call(*arguments)
    assert caught.value.code == code, caught.value
    return caught.value.message


def policy(base, **choice):
    found = config(m=base)
    chosen = found.model_config_list.config[0].model_version_policy
    for kind, value in choice.items():
        if kind == "latest":
            chosen.latest.num_versions = value
        elif kind == "specific":
            chosen.specific.versions.extend(value)
        else:
            chosen.all.SetInParent()
    return found


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, [12]),
        ({"latest": 2}, [3, 12]),
        ({"latest": 9}, [1, 3, 12]),
        ({"all": True}, [1, 3, 12]),
        ({"specific": [1, 3]}, [1, 3]),
        ({"specific": [2]}, []),
    ],
)
def test_policies(tmp_path, choice, expected):
    for name in ("1", "0003", "12", "tmp-13", "14.5", "x", "99999999999999999999"):
        (tmp_path / name).mkdir()
    chosen = policy(tmp_path, **choice).model_config_list.config[0].model_version_policy
    found = versions.choose(versions.find(str(tmp_path), "m"), chosen)
    assert sorted(found) == expected
    if 3 in found:
        assert found[3].endswith("0003")


def test_names_and_versions_that_are_not_there(start, base_path):
    manager = start(config(m=base_path))
    assert predict(manager, "m") == (2.0, 1)
    assert predict(manager, "m", 1) == (2.0, 1)
    for target, asked in (
        (("n",), "Latest(n)"),
        (("../m",), "Latest(../m)"),
        (("m", 3), "Specific(m, 3)"),
    ):
        assert refused("NOT_FOUND", predict, manager, *target) == f"Servable not found for request: {asked}"
    assert refused("INVALID_ARGUMENT", predict, manager, "") == "ModelSpec has no name specified."
    assert refused("NOT_FOUND", states, manager, "n") == "Could not find any versions of model n"
    message = refused("NOT_FOUND", manager.states, Target("m", 3))
    assert message == "Could not find version 3 of model m"


def test_a_new_version_replaces_the_old_without_a_failed_request(start, base_path, other_model):
    manager = start(config(m=base_path))
    seen, failures, done = [], [], threading.Event()

    def client():
        while not done.is_set():
            try:
                seen.append(predict(manager, "m"))
            except Exception as error:  # any at all is what the test is about
                failures.append(error)

    clients = [threading.Thread(target=client) for _ in range(4)]
    for thread in clients:
        thread.start()
    until(lambda: len(seen) > 20)
    add_version(other_model, base_path, 2)
    until(lambda: states(manager) == {1: "END", 2: "AVAILABLE"})
    count = len(seen)
    until(lambda: len(seen) > count + 20)
    done.set()
    for thread in clients:
        thread.join()
    assert not failures
    assert set(seen) == {(2.0, 1), (5.0, 2)}
    assert set(seen[-10:]) == {(5.0, 2)}


def test_a_corrupt_version_is_reported_and_the_old_one_serves(start, base_path, other_model):
    manager = start(config(m=base_path), loader={"retries": 2})
    break_version(base_path, 2)
    until(lambda: states(manager).get(2) == "END")
    assert states(manager) == {1: "AVAILABLE", 2: "END"}
    status = Handlers(manager).status(Target("m")).model_version_status
    assert [(s.version, s.status.error_code) for s in status] == [(2, 15), (1, 0)]
    assert "Can't parse" in status[0].status.error_message
    assert predict(manager, "m") == (2.0, 1)
    assert refused("NOT_FOUND", predict, manager, "m", 2) == "Servable not found for request: Specific(m, 2)"
    add_version(other_model, base_path, 3)
    until(lambda: states(manager) == {1: "END", 2: "END", 3: "AVAILABLE"})
    assert predict(manager, "m") == (5.0, 3)


def test_attempts_to_load(start, base_path, saved_model):
    attempts = []

    class Counting:
        def loaded(self, path, status, seconds):
            attempts.append((path[-1], status))

    manager = start(config(m=base_path), loader={"retries": 2, "metrics": Counting(), "warm_up": False})
    break_version(base_path, 2)
    until(lambda: states(manager).get(2) == "END")
    assert attempts == [("1", "success")] + [("2", "fail")] * 3
    # Removed and put back, it is a new version.
    shutil.rmtree(base_path / "2")
    until(lambda: not manager._versions["m"][2].wanted)
    add_version(saved_model, base_path, 2)
    until(lambda: states(manager) == {1: "END", 2: "AVAILABLE"})


def test_a_version_mended_in_place(start, base_path, saved_model):
    manager = start(config(m=base_path), retry_failed=True)
    break_version(base_path, 2)
    until(lambda: states(manager).get(2) == "END")
    shutil.copytree(saved_model, base_path / "2", dirs_exist_ok=True)
    until(lambda: states(manager) == {1: "END", 2: "AVAILABLE"})


def test_a_removed_version_is_unloaded_when_its_last_request_has_left(start, base_path, other_model):
    add_version(other_model, base_path, 2)
    manager = start(policy(base_path, all=True))
    until(lambda: states(manager) == {1: "AVAILABLE", 2: "AVAILABLE"})
    with manager.use(Target("m", 1)) as (servable, version):
        shutil.rmtree(base_path / "1")
        until(lambda: states(manager)[1] == "UNLOADING")
        assert refused("NOT_FOUND", predict, manager, "m", 1)
        assert version == 1 and servable.run("", {"x": ROW})["y"][0, 0] == 2.0
        assert states(manager)[1] == "UNLOADING"
    until(lambda: states(manager) == {1: "END", 2: "AVAILABLE"})


def test_a_folder_that_is_away_unloads_nothing(start, base_path, tmp_path):
    manager = start(config(m=base_path), poll_seconds=0)
    base_path.rename(tmp_path / "away")
    manager.poll()
    assert predict(manager, "m") == (2.0, 1)


def test_labels(start, base_path, other_model):
    add_version(other_model, base_path, 2)
    both = policy(base_path, all=True)
    manager = start(both)
    until(lambda: states(manager) == {1: "AVAILABLE", 2: "AVAILABLE"})
    message = refused("INVALID_ARGUMENT", predict, manager, "m", None, "stable")
    assert message == "Unrecognized servable version label: stable"
    labels = both.model_config_list.config[0].version_labels
    labels["stable"], labels["canary"] = 1, 2
    manager.reload(both)
    assert predict(manager, "m", None, "stable") == (2.0, 1)
    assert predict(manager, "m", None, "canary") == (5.0, 2)
    assert [version for version, *_ in manager.states(Target("m", None, "canary"))] == [2]
    labels["stable"] = 7
    assert refused("FAILED_PRECONDITION", manager.reload, both) == (
        "Request to assign label to version 7 of model m, which is not currently available for inference"
    )
    assert predict(manager, "m", None, "stable") == (2.0, 1)


def test_labels_at_the_start_need_a_flag(start, base_path):
    labelled = config(m=base_path)
    labelled.model_config_list.config[0].version_labels["stable"] = 1
    refused("FAILED_PRECONDITION", start, labelled)
    assert predict(start(labelled, labels_for_unavailable=True), "m", None, "stable") == (2.0, 1)


def test_reload_replaces_the_models(start, base_path, other_model, tmp_path):
    manager = start(config(m=base_path))
    other = tmp_path / "other"
    other.mkdir()
    add_version(other_model, other, 4)
    manager.reload(config(n=other))
    assert predict(manager, "n") == (5.0, 4)
    until(lambda: states(manager) == {1: "END"})
    assert refused("NOT_FOUND", predict, manager, "m")
    manager.reload(config(n=other, m=base_path))
    assert predict(manager, "m") == (2.0, 1)


def test_reloads_that_cannot_be_served_change_nothing(start, base_path, tmp_path):
    manager = start(config(m=base_path))
    twice = config(m=base_path)
    twice.model_config_list.config.add().CopyFrom(twice.model_config_list.config[0])
    assert refused("INVALID_ARGUMENT", manager.reload, twice) == "Illegal to list model m multiple times in config list"
    message = refused("INVALID_ARGUMENT", manager.reload, config(n="relative"))
    assert message == "Expected model n to have an absolute path or URI; got base_path()=relative"
    message = refused("INVALID_ARGUMENT", manager.reload, config(n=tmp_path / "none"))
    assert message.startswith(f"Could not find base path {tmp_path / 'none'} for servable n")
    (tmp_path / "empty").mkdir()
    message = refused("NOT_FOUND", manager.reload, config(n=tmp_path / "empty"))
    assert message == f"Unable to find a numerical version path for servable n at: {tmp_path / 'empty'}"
    platform = config(n=base_path)
    platform.model_config_list.config[0].model_platform = "caffe"
    assert "unsupported platform caffe" in refused("INVALID_ARGUMENT", manager.reload, platform)
    assert manager.names() == ["m"] and predict(manager, "m") == (2.0, 1)


def test_a_model_that_does_not_load(start, base_path, tmp_path):
    manager = start(config(m=base_path))
    broken = tmp_path / "broken"
    broken.mkdir()
    break_version(broken, 1)
    message = refused("UNKNOWN", manager.reload, config(m=base_path, n=broken))
    assert message.startswith("1 model(s) did not become available: {{{name: n version: 1} due to error: DATA_LOSS: ")
    assert predict(manager, "m") == (2.0, 1)
    refused("UNKNOWN", start, config(n=broken))


def test_a_new_model_whose_version_vanishes_holds_up_nothing(start, base_path, saved_model, tmp_path, monkeypatch):
    manager = start(config(m=base_path), poll_seconds=0)
    require = manager._require

    def require_and_remove(models):
        require(models)
        shutil.rmtree(gone, ignore_errors=True)

    gone = tmp_path / "gone"
    gone.mkdir()
    add_version(saved_model, gone, 1)
    monkeypatch.setattr(manager, "_require", require_and_remove)
    message = refused("UNKNOWN", manager.reload, config(m=base_path, n=gone), 10)
    assert message == "1 model(s) did not become available: {{name: n has no version that is loaded}, }"
    manager.reload(config(m=base_path))


def test_a_model_that_is_put_back_while_it_is_unloaded(start, base_path, other_model, tmp_path):
    """Without a poller nobody else looks again."""
    other = tmp_path / "other"
    other.mkdir()
    add_version(other_model, other, 1)
    manager = start(config(m=base_path, n=other), poll_seconds=0)
    reload = threading.Thread(target=manager.reload, args=(config(m=base_path, n=other), 30), daemon=True)
    with manager.use(Target("n")):
        manager.reload(config(m=base_path))
        assert states(manager, "n") == {1: "UNLOADING"}
        reload.start()
        until(lambda: "n" in manager.names())
        assert states(manager, "n") == {1: "UNLOADING"}
    reload.join(30)
    assert not reload.is_alive() and states(manager, "n") == {1: "AVAILABLE"}
    assert predict(manager, "n") == (5.0, 1)


@pytest.fixture
def slow_load(monkeypatch):
    """Loads of versions under a folder named "slow" wait for `finish`; `paths` are those that have begun."""
    load, paths, finish = Loader.load, [], threading.Event()

    def wait_and_load(self, path):
        paths.append(path)
        assert "slow" not in path or finish.wait(60)
        return load(self, path)

    monkeypatch.setattr(Loader, "load", wait_and_load)
    yield paths, finish
    finish.set()


@pytest.mark.parametrize("same", [True, False], ids=["same path", "other path"])
def test_a_model_that_is_put_back_while_it_is_loaded(
    start, base_path, saved_model, other_model, tmp_path, slow_load, monkeypatch, same
):
    paths, finish = slow_load
    slow, other = tmp_path / "slow", tmp_path / "other"
    for folder, model in ((slow, saved_model), (other, other_model)):
        folder.mkdir()
        add_version(model, folder, 1)
    manager = start(config(m=base_path), poll_seconds=0, loader={"threads": 2})
    refused("UNKNOWN", manager.reload, config(m=base_path, n=slow), 0.01)
    until(lambda: str(slow / "1") in paths)
    manager.reload(config(m=base_path))
    has_looked, wait = threading.Event(), manager._wait
    monkeypatch.setattr(manager, "_wait", lambda *arguments: (has_looked.set(), wait(*arguments)))
    back = config(m=base_path, n=slow if same else other)
    reload = threading.Thread(target=manager.reload, args=(back, 30), daemon=True)
    reload.start()
    assert has_looked.wait(30)
    finish.set()
    reload.join(30)
    assert not reload.is_alive() and states(manager, "n") == {1: "AVAILABLE"}
    assert predict(manager, "n") == (2.0 if same else 5.0, 1)
    assert paths.count(str(slow / "1")) == 1


def test_the_old_version_serves_until_one_that_is_put_back_is_loaded(start, base_path, other_model):
    add_version(other_model, base_path, 2)
    manager = start(policy(base_path, specific=[1]), poll_seconds=0)
    with manager.use(Target("m")):
        manager.reload(policy(base_path, specific=[2]))
        until(lambda: states(manager) == {1: "UNLOADING", 2: "AVAILABLE"})
        manager.reload(policy(base_path, specific=[1]))
        assert states(manager) == {1: "UNLOADING", 2: "AVAILABLE"} and predict(manager, "m") == (5.0, 2)
    until(lambda: states(manager) == {1: "AVAILABLE", 2: "END"})


def test_a_look_that_began_before_a_reload_does_not_undo_its_own(start, base_path, tmp_path, monkeypatch):
    """A reload would wait for ever for a model that is not there."""
    manager = start(config(m=base_path), poll_seconds=0)
    find, in_look, go_on = versions.find, threading.Event(), threading.Event()

    def slow_find(*arguments):
        found = find(*arguments)
        if threading.current_thread() is look:
            in_look.set()
            assert go_on.wait(60)
        return found

    (tmp_path / "empty").mkdir()
    look = threading.Thread(target=manager.poll)
    monkeypatch.setattr(versions, "find", slow_find)
    monkeypatch.setattr(manager, "_require", lambda models: None)  # it was there a moment ago
    look.start()
    assert in_look.wait(60)
    monkeypatch.setattr(manager, "_wait", lambda *_: None)
    manager.reload(config(m=base_path, n=tmp_path / "empty"))
    go_on.set()
    look.join()
    assert manager._absent == {"n"}


def test_a_base_path_that_is_a_file(start, base_path, tmp_path):
    manager = start(config(m=base_path))
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused("NOT_FOUND", manager.reload, config(n=tmp_path / "file"))
    assert predict(manager, "m") == (2.0, 1)


def test_a_warm_up_that_fails_in_any_way_closes_the_model(saved_model, monkeypatch):
    seen = []

    def warm_up(servable, *_):
        seen.append(servable)
        raise MemoryError

    monkeypatch.setattr(warmup, "warm_up", warm_up)
    with pytest.raises(MemoryError):
        Loader().load(saved_model)
    assert seen[0]._session is None


def test_stop_waits_for_requests(base_path):
    manager = serving_models.manager()
    manager.start(config(m=base_path), timeout=30)
    stopping = threading.Thread(target=manager.stop)
    with manager.use(Target("m")) as (servable, _):
        stopping.start()
        until(lambda: states(manager) == {1: "UNLOADING"})
        assert servable.run("", {"x": ROW})["y"][0, 0] == 2.0
    stopping.join(30)
    assert states(manager) == {1: "END"}


def test_a_server_that_is_being_stopped_takes_no_new_config(base_path):
    manager = serving_models.manager()
    manager.start(config(m=base_path), timeout=30)
    stopping = threading.Thread(target=manager.stop, daemon=True)
    with manager.use(Target("m")):
        stopping.start()
        until(lambda: states(manager) == {1: "UNLOADING"})
        message = refused("UNAVAILABLE", manager.reload, config(m=base_path, n=base_path), 5)
        assert message == "The server is being stopped."
    stopping.join(30)
    assert not stopping.is_alive() and manager.names() == []
