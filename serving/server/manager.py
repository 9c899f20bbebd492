"""The models of a server: looks for versions, loads new ones before it unloads old ones, finds the one for a request.

A version that is no longer asked for goes on serving until one that is asked for is available, so a new version that
cannot be loaded does no harm.
"""

import contextlib
import logging
import threading

from serving.server import versions
from serving.server.errors import ServingError, failed_precondition, invalid, not_found
from serving.server.loading import AVAILABLE, END, LOADING, START, Loader, Version

MAX_ENDED = 100  # versions of a model that have ended and are still shown in its status
log = logging.getLogger(__name__)


class Manager:
    """
    Args:
        loader: `loading.Loader`.
        poll_seconds: between two looks at the file system; 0, or less, looks once.
        labels_for_unavailable: labels may name versions that are not available yet.
        require_versions: a model without any version in its folder is an error, not something to wait for.
        retry_failed: load a version that failed again with each look, for folders mended in place.
    """

    def __init__(
        self,
        loader=None,
        poll_seconds=1.0,
        labels_for_unavailable=False,
        require_versions=False,
        retry_failed=False,
    ):
        self._loader = loader or Loader()
        self._poll_seconds = poll_seconds
        self._labels_for_unavailable = labels_for_unavailable
        self._require_versions = require_versions
        self._retry_failed = retry_failed
        self._configs, self._labels = {}, {}
        self._absent = set()  # names of models without a version to serve at the last look
        self._versions = {}  # name to number to Version: what is served, and what has ended
        self._available = {}  # name to number to Version; replaced, never changed, so that requests need no lock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._reloading = threading.Lock()
        self._stopped = threading.Event()
        self._poller = None

    # Requests

    @contextlib.contextmanager
    def use(self, target):
        """`(servable, version)` for a `Target`, kept loaded until the end of the block."""
        if not target.name:
            raise invalid("ModelSpec has no name specified.")
        number = self.resolve(target)
        while True:
            available = self._available.get(target.name, {})
            chosen = available.get(max(available, default=None) if number is None else number)
            if chosen is None:
                asked = f"Latest({target.name})" if number is None else f"Specific({target.name}, {number})"
                raise not_found(f"Servable not found for request: {asked}")
            with chosen.use() as servable:
                if servable is not None:  # else it left between the look and the use: look again
                    yield servable, chosen.number
                    return

    def resolve(self, target):
        """Number of the version that a target names by number or label, or `None`."""
        if target.label is None:
            return target.version
        found = self._labels.get(target.name, {}).get(target.label)
        if found is None:
            raise invalid(f"Unrecognized servable version label: {target.label}")
        return found

    def states(self, target):
        """List of `(version, state, error)`, the newest first."""
        if not target.name:
            raise invalid("ModelSpec has no name specified.")
        number = self.resolve(target)
        with self._lock:
            found = self._versions.get(target.name, {})
            chosen = [v for v in found.values() if number is None or v.number == number]
            states = [(v.number, v.state, v.error) for v in chosen]
        if not states:
            which = "any versions" if number is None else f"version {number}"
            raise not_found(f"Could not find {which} of model {target.name}")
        return sorted(states, key=lambda state: -state[0])

    def names(self):
        """Names of the models that are configured."""
        return sorted(self._configs)

    # Configuration

    def start(self, config, timeout=None):
        """Serves a `ModelServerConfig`; returns when each model has a version, or raises if one cannot have any."""
        self.reload(config, timeout, first=True)

    def reload(self, config, timeout=None, first=False):
        """Serves what a new `ModelServerConfig` says instead, and waits for models that are new in it."""
        kind = config.WhichOneof("config")
        if kind is None:
            return
        if kind != "model_config_list":
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently "
                "supported"
            )
        with self._reloading:
            if self._stopped.is_set():  # what it would load, nobody would unload
                raise ServingError("UNAVAILABLE", "The server is being stopped.")
            models = {model.name: model for model in config.model_config_list.config}
            versions.validate(config.model_config_list)
            with self._lock:
                new = set(models) - set(self._configs)
                labels = self._new_labels(models)
            if not first or self._require_versions:
                self._require(models[name] for name in new)
            with self._lock:
                self._configs, self._labels = models, labels
            self.poll()
            if self._poller is None and self._poll_seconds > 0:
                self._poller = threading.Thread(target=self._poll_forever, name="poll versions", daemon=True)
                self._poller.start()
            self._wait(new, timeout, first)

    def stop(self, loads=True):
        """No more looks at the file system; unloads everything and waits for requests under way.

        Args:
            loads: also waits for versions that are being loaded, which cannot be interrupted.

        Returns: whether nothing is left.
        """
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()  # a reload that waits for its models holds the next lock
        with self._reloading, self._lock:
            self._configs = {}
        if self._poller is not None:
            self._poller.join()
        self.poll()

        def states():
            return {version.state for found in self._versions.values() for version in found.values()}

        left = {END} if loads else {START, LOADING, END}
        with self._changed:
            self._changed.wait_for(lambda: states() <= left)
            return states() <= {END}

    def poll(self):
        """One look at the file system."""
        with self._lock:
            configs = dict(self._configs)
            wanted = {name: {} for name in self._versions if name not in configs}
        for name, config in configs.items():
            try:
                wanted[name] = versions.choose(versions.find(config.base_path, name), config.model_version_policy)
            except ServingError as error:  # a folder that is away for a moment is no reason to unload
                log.error("%s", error.message)
            except Exception:  # remote file systems fail in their own ways, and the next look may go better
                log.exception("Could not list the versions of %s", name)
        with self._lock:
            # Where a reload came between, its own look is the one that counts.
            looked = {name for name in {*configs, *wanted} if self._configs.get(name) == configs.get(name)}
            absent = {name for name in looked if not wanted.get(name)}
            self._absent = (self._absent - looked | absent) & set(self._configs)
            for name, found in wanted.items():
                if name in looked:
                    self._aspire(name, found)
            self._changed.notify_all()

    def _poll_forever(self):
        while not self._stopped.wait(self._poll_seconds):
            self.poll()

    def _aspire(self, name, found):
        known = self._versions.setdefault(name, {})
        for number in sorted(found, reverse=True):
            old = known.get(number)
            failed = old is not None and old.state == END
            if old is None or (failed and (not old.wanted or self._retry_failed)):
                self._begin(name, number, found[number])
            elif not old.wanted and old.state == AVAILABLE:
                old.wanted = True
            elif not old.wanted:  # loading or unloading, which go on to their end
                old.again = found[number]
        for number, version in known.items():
            if number not in found:
                version.unwant()
        self._settle(name)

    def _begin(self, name, number, path):
        version = self._versions[name][number] = Version(name, number, path, self._loader, self._on_change)
        version.start()

    def _resume(self, version):
        """Keeps a version that was asked for again while it was loading; one that has ended is loaded anew."""
        if version.state == AVAILABLE and version.again == version.path:
            version.wanted, version.again = True, None
        elif version.state == END:
            self._begin(version.name, version.number, version.again)

    def _settle(self, name):
        """Unloads what is not wanted once something wanted is available, or nothing is wanted at all."""
        known = self._versions[name]
        wanted = [v for v in known.values() if v.wanted or v.again]
        if not wanted or any(v.state == AVAILABLE for v in wanted):
            for version in known.values():
                if not version.wanted and version.state == AVAILABLE:
                    version.unload()
        ended = sorted((v.number for v in known.values() if v.state == END and not v.wanted), reverse=True)
        for number in ended[MAX_ENDED:]:
            del known[number]

    def _on_change(self, version):
        with self._changed:
            known = self._versions.get(version.name, {})
            if version.again and known.get(version.number) is version:
                self._resume(version)
            ready = {number: v for number, v in known.items() if v.state == AVAILABLE}
            self._available = {**self._available, version.name: ready}
            if version.state == AVAILABLE:
                self._settle(version.name)
            self._changed.notify_all()

    def _new_labels(self, models):
        found = {}
        for name, model in models.items():
            for label, number in model.version_labels.items():
                moved = self._labels.get(name, {}).get(label, number) != number
                known = self._available.get(name, {})
                if number not in known and (moved or not self._labels_for_unavailable):
                    raise failed_precondition(
                        f"Request to assign label to version {number} of model {name}, which is not currently "
                        "available for inference"
                    )
                found.setdefault(name, {})[label] = number
        return found

    def _require(self, models):
        """TF-Serving would wait for a folder for ever, and with it all later reloads."""
        for model in models:
            if not versions.choose(versions.find(model.base_path, model.name), model.model_version_policy):
                raise not_found(
                    f"Unable to find a numerical version path for servable {model.name} at: {model.base_path}"
                )

    def _wait(self, names, timeout, first):
        def settled(name):
            if name not in self._configs or self._available.get(name):
                return True
            wanted = [v for v in self._versions.get(name, {}).values() if v.wanted or v.again]
            if not wanted:  # at the start one may come yet; later, waiting would hold up all other reloads
                return not first and name in self._absent
            return not any(v.again or v.state in (START, LOADING, AVAILABLE) for v in wanted)

        with self._changed:
            done = self._changed.wait_for(
                lambda: self._stopped.is_set() or all(settled(name) for name in names), timeout
            )
            missing = [name for name in sorted(names) if name in self._configs and not self._available.get(name)]
            failed = [v for name in missing for v in self._versions.get(name, {}).values() if v.error is not None]
        if missing and (failed or not done or not first):
            reasons = [f"{{{v} due to error: {v.error.code}: {v.error.message}}}, " for v in failed]
            absent = set(missing) - {v.name for v in failed}
            reasons += [f"{{name: {name} has no version that is loaded}}, " for name in sorted(absent)]
            raise ServingError("UNKNOWN", f"{len(missing)} model(s) did not become available: {{{''.join(reasons)}}}")
