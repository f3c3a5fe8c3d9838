"""Environments by gymnasium, checked against the workload; whatever one does wrong is a TrainingError."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import TrainingError, WorkloadError
from .workload import Workload

LARGEST = float(np.finfo(np.float32).max)  # what a record can hold
INSTALL = "install the extra with: pip install '.[train]'"
_EXTRA = ("ale_py", "Box2D", "cv2", "mujoco", "torch")  # modules that the extra brings, besides gymnasium


def check_spaces(workload: Workload) -> None:
    """WorkloadError where a workload does not fit its environment, as far as that can be made here."""
    try:
        Environment(workload).close()
    except WorkloadError:
        raise
    except TrainingError:  # what it needs is not here, so training is elsewhere
        pass


def warn_of_code(workload: Workload) -> None:
    """Say on stderr that a workload's environment names a module, which is code that making it runs."""
    module, colon, _ = workload.environment.partition(":")
    if colon:
        print(f"note: {workload.name} runs code: its environment imports {module}", file=sys.stderr, flush=True)


class Environment:
    """One environment of a workload, made with gymnasium's ``options``. Actions are the learner's: a choice, or numbers
    in [-1, 1].

    Observations have the workload's shape and dtype and are finite, and rewards are finite in float32; anything else,
    and any exception of the environment, is raised as a TrainingError.
    """

    def __init__(self, workload: Workload, **options: Any) -> None:
        self._workload, self._name = workload, workload.environment
        self._made = _make(workload, options)
        self._check_spaces()

    def reset(self, seed: int) -> NDArray[Any]:
        """The first observation of an episode that the seed alone decides."""
        try:
            observation, _ = self._made.reset(seed=seed)
        except Exception as error:  # whatever an environment raises
            raise TrainingError(f"{self._name}: reset raised {described(error)}") from error
        return self.checked(observation)

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
        """(observation, reward, terminated, truncated). A truncated episode was cut off, it did not end by itself."""
        own_action = self._action(action)
        try:
            observation, reward, terminated, truncated, _ = self._made.step(own_action)
        except Exception as error:  # whatever an environment raises
            raise TrainingError(f"{self._name}: step raised {described(error)}") from error
        try:
            gain = float(reward)
        except (TypeError, ValueError):
            raise TrainingError(f"{self._name}: its reward is {_shown(reward)}, not a number") from None
        if not abs(gain) <= LARGEST:  # written so, it refuses NaN too
            raise TrainingError(
                f"{self._name}: its reward is {gain}, which nothing can be learnt from; it must be finite in float32"
            )
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise TrainingError(f"{self._name}: its {name} is {_shown(flag)}, not true or false")
        return self.checked(observation), gain, bool(terminated), bool(truncated)

    def close(self) -> None:
        """Close the environment; an exception it raises is ignored, so that an earlier one is what the user sees."""
        with contextlib.suppress(Exception):  # whatever an environment raises
            self._made.close()

    def draw(self) -> NDArray[np.uint8]:
        """An image ``[H, W, 3]`` of the environment now, which was made with render_mode "rgb_array"."""
        try:
            image = np.asarray(self._made.render())
        except Exception as error:  # whatever an environment raises
            raise TrainingError(f"{self._name}: render raised {described(error)}") from error
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise TrainingError(f"{self._name}: it draws {_shown(image)}, which is no image [H, W, 3] of bytes")
        return image

    def vector(self, environments: int) -> Any:
        """gymnasium's own vector of ``environments`` such ones, or None where it has none that fits the workload."""
        spec = self._made.spec
        if spec.vector_entry_point is None or spec.additional_wrappers or self._workload.observation.frames > 1:
            return None
        import gymnasium  # noqa: PLC0415  # loaded by now

        with _making(self._name):
            return gymnasium.make_vec(self._name, environments, vectorization_mode="vector_entry_point")

    def _action(self, action: Any) -> Any:
        if self._workload.has_choices:
            return int(self._made.action_space.start) + int(action)
        own_action = self.own_actions(np.asarray(action)[None])[0]
        return int(own_action) if self._workload.action.choices else own_action

    def own_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The environment's own actions for the learner's, ``[E, ..]`` both. TrainingError for numbers that are not."""
        choices, space = self._workload.action.choices, self._made.action_space
        if self._workload.has_choices:
            return np.asarray(space.start + actions, np.int64)
        if not np.isfinite(actions).all():
            bad = actions[~np.isfinite(actions)][0]
            raise TrainingError(f"the policy's action is {bad}; training has diverged, try a smaller learning_rate")
        low, high = (space.start, space.start + choices - 1) if choices else (space.low, space.high)
        return stretched(actions[:, 0] if choices else actions, np.asarray(low), np.asarray(high)).astype(space.dtype)

    def checked(self, observations: Any, *environments: int) -> NDArray[Any]:
        """A copy of one observation, or of ``[E, *shape]`` of E environments, in the workload's dtype."""
        stated = self._workload.observation
        shape = (*environments, *stated.stacked)
        try:
            array = np.asarray(observations)
        except (TypeError, ValueError) as error:
            raise TrainingError(f"{self._name}: an observation is no array of numbers: {described(error)}") from None
        if array.dtype.kind not in "fiub":
            raise TrainingError(f"{self._name}: an observation has the dtype {array.dtype}, which is not of numbers")
        if stated.dtype == "uint8" and not np.can_cast(array.dtype, np.uint8):
            raise TrainingError(
                f"{self._name}: an observation has the dtype {array.dtype}, which uint8 does not hold; "
                'the workload can say dtype = "float32"'
            )
        if array.shape != shape:
            raise TrainingError(
                f"{self._name}: an observation has the shape {list(array.shape)}, the workload says {list(shape)}"
            )
        with np.errstate(over="ignore"):
            kept = array.astype(stated.dtype)  # a copy: an environment may show the same array again
        if array.dtype.kind == "f" and not np.isfinite(kept).all():
            bad = array[~np.isfinite(kept)][0]
            raise TrainingError(f"{self._name}: an observation holds {bad}, which is not finite in float32")
        return kept

    def _check_spaces(self) -> None:
        from gymnasium.spaces import Box, Discrete  # noqa: PLC0415  # loaded by now

        space, action = self._made.action_space, self._workload.action
        has = f"the space {type(space).__name__}"
        if isinstance(space, Discrete):
            has = f"{space.n} choices"
        elif isinstance(space, Box):
            has = f"size {'x'.join(map(str, space.shape or (0,)))}"
        says = f"{action.choices} choices" if action.choices else f"size {action.size}"
        if has != says:
            raise WorkloadError(f"{self._name}: an action has {has}, the workload says {says}")
        if isinstance(space, Box) and not np.isfinite([space.low, space.high]).all():
            raise WorkloadError(
                f"{self._name}: an action reaches from {space.low.min()} to {space.high.max()}; "
                "give the environment finite bounds"
            )
        shape = self._made.observation_space.shape
        if shape != self._workload.observation.stacked:
            stated = list(self._workload.observation.stacked)
            raise WorkloadError(
                f"{self._name}: observations have the shape {list(shape or ())}, the workload says {stated}"
            )


def stretched(actions: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Numbers in [low, high] for ``actions`` in [-1, 1]: -1 is low, 1 is high.

    Whole numbers each have an equal interval of [-1, 1]; they are counted as Python's, which no span overflows.
    """
    if low.dtype.kind == "f":
        share = (actions + 1) / 2
        with np.errstate(over="ignore", invalid="ignore"):
            own = low + share * (high - low)
        if not np.isfinite(own).all():  # a span that its dtype does not hold
            own = (1 - share) * np.float64(1) * low + share * np.float64(1) * high
        return np.where(share < 1, np.minimum(np.maximum(own, low), high), high)
    share = (actions.astype(np.float64) + 1) / 2
    count = high.astype(object) - low.astype(object) + 1
    return np.asarray(low.astype(object) + np.clip(np.frompyfunc(int, 1, 1)(share * count), 0, count - 1))


def _make(workload: Workload, options: dict[str, Any]) -> Any:
    try:
        import gymnasium  # noqa: PLC0415  # heavy, and needed only to train
    except ModuleNotFoundError:
        raise TrainingError(f"environments need the package gymnasium; {INSTALL}") from None
    with _making(workload.environment):
        if workload.environment.startswith("ALE/"):
            return _atari(workload, options)
        made = gymnasium.make(workload.environment, disable_env_checker=True, **options)
        if not made.observation_space.shape:  # one number, or parts: Discrete ones as one-hot vectors
            made = gymnasium.wrappers.FlattenObservation(made)
        return _stacked(made, workload)


@contextlib.contextmanager
def _making(environment: str) -> Iterator[None]:
    """Turn whatever is raised while an environment is made into a TrainingError; gymnasium is imported by now."""
    import gymnasium  # noqa: PLC0415

    # Box2D's bindings warn when they are loaded, and crash the process where warnings are errors.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except TrainingError:
            raise
        except gymnasium.error.DependencyNotInstalled as error:
            lacking = [name for name in _EXTRA if find_spec(name) is None]
            remedy = f"; {INSTALL}" if lacking else ""
            raise TrainingError(f"{environment} needs a package: {described(error)}{remedy}") from None
        except gymnasium.error.UnregisteredEnv as error:
            raise TrainingError(
                f"gymnasium knows no environment {environment!r} ({described(error)}); if a module of yours "
                "registers it, write MODULE:ID"
            ) from None
        except ModuleNotFoundError as error:
            raise TrainingError(_lacks(environment, error)) from None
        except Exception as error:  # gymnasium's own errors, and whatever a constructor raises
            raise TrainingError(f"{environment} cannot be made: {described(error)}") from error


def _lacks(environment: str, error: ModuleNotFoundError) -> str:
    """The module that an environment lacks, and the remedy. gymnasium hides the first error behind its own."""
    cause = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error
    missing, (own, colon, _) = cause.name or "", environment.partition(":")
    if colon and missing and (own == missing or own.startswith(f"{missing}.")):
        return (
            f"{environment}: there is no module {missing!r} to import; put the folder that holds it on PYTHONPATH, or "
            "install its package"
        )
    remedy = INSTALL if missing.partition(".")[0] in _EXTRA else "install its package"
    return f"{environment} needs the module {missing!r}, which is not installed; {remedy}"


def _atari(workload: Workload, options: dict[str, Any]) -> Any:
    """Atari with the preprocessing of [Mnih2015]: up to 30 no-ops, every 4th frame, maximum of two, 84x84 in gray."""
    import gymnasium  # noqa: PLC0415

    try:
        import ale_py  # noqa: PLC0415
        import cv2  # noqa: F401, PLC0415  # which the preprocessing needs, and asks for late
    except ModuleNotFoundError as error:
        raise TrainingError(f"{workload.environment} needs the module {error.name!r}; {INSTALL}") from None
    gymnasium.register_envs(ale_py)
    with contextlib.suppress(AttributeError):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner at each start
    height, width = workload.observation.shape
    made = gymnasium.make(workload.environment, frameskip=1, disable_env_checker=True, **options)
    return _stacked(gymnasium.wrappers.AtariPreprocessing(made, screen_size=(height, width)), workload)


def _stacked(made: Any, workload: Workload) -> Any:
    if workload.observation.frames == 1:
        return made
    from gymnasium.wrappers import FrameStackObservation  # noqa: PLC0415

    return FrameStackObservation(made, workload.observation.frames)


def described(error: Exception) -> str:
    """An error's type and message in one line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}" if words else type(error).__name__


def _shown(value: object) -> str:
    """A value in one line, cut where it is long."""
    return " ".join(repr(value).split())[:80]
