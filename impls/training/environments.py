"""Environments by gymnasium, held to what the workload says of them; whatever one does wrong is a TrainingError."""

import contextlib
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import TrainingError
from .workload import CONTINUOUS, Workload

INSTALL = "install the extra with: pip install '.[train]'"


class Environment:
    """One environment of a workload. Actions are the learner's: a choice, or numbers in [-1, 1]."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self._name = workload, workload.environment
        self._made = _make(workload)
        self._check_spaces()

    def reset(self, seed: int) -> NDArray[Any]:
        """The first observation of an episode that the seed alone decides."""
        try:
            observation, _ = self._made.reset(seed=seed)
        except Exception as error:  # whatever an environment raises
            raise TrainingError(f"{self._name}: reset raised {_told(error)}") from error
        return self._checked(observation)

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
        """(observation, reward, terminated, truncated). A truncated episode was cut off, it did not end by itself."""
        try:
            observation, reward, terminated, truncated, _ = self._made.step(self._action(action))
        except Exception as error:  # whatever an environment raises
            raise TrainingError(f"{self._name}: step raised {_told(error)}") from error
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise TrainingError(f"{self._name}: its reward is {reward!r}, not a number") from None
        if not np.isfinite(number):
            raise TrainingError(f"{self._name}: its reward is {number}, which nothing can be learnt from")
        return self._checked(observation), number, bool(terminated), bool(truncated)

    def close(self) -> None:
        """Give back what the environment holds."""
        self._made.close()

    def _action(self, action: Any) -> Any:
        choices = self._workload.action.choices
        if self._workload.algorithm not in CONTINUOUS:
            return int(action)
        if choices:  # equal intervals of [-1, 1], see Workload.action_size
            return min(int((float(action[0]) + 1) / 2 * choices), choices - 1)
        low, high = self._made.action_space.low, self._made.action_space.high
        return (low + (np.asarray(action) + 1) / 2 * (high - low)).astype(self._made.action_space.dtype)

    def _checked(self, observation: Any) -> NDArray[Any]:
        stated = self._workload.observation
        found = np.asarray(observation)
        if found.shape != stated.stacked:
            raise TrainingError(
                f"{self._name}: an observation has the shape {list(found.shape)}, the workload says "
                f"{list(stated.stacked)}"
            )
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise TrainingError(f"{self._name}: an observation holds {found[~np.isfinite(found)][0]}")
        return np.array(found, stated.dtype)  # a copy: an environment may show the same array again

    def _check_spaces(self) -> None:
        space, action = self._made.action_space, self._workload.action
        has = f"{space.n} choices" if hasattr(space, "n") else f"size {'x'.join(map(str, space.shape or (0,)))}"
        says = f"{action.choices} choices" if action.choices else f"size {action.size}"
        if has != says:
            raise TrainingError(f"{self._name}: an action has {has}, the workload says {says}")
        shape = self._made.observation_space.shape
        if shape != self._workload.observation.stacked:
            told = list(self._workload.observation.stacked)
            raise TrainingError(
                f"{self._name}: observations have the shape {list(shape or ())}, the workload says {told}"
            )


def _make(workload: Workload) -> Any:
    try:
        import gymnasium  # noqa: PLC0415  # a heavy library, for whoever trains
    except ModuleNotFoundError:
        raise TrainingError(f"environments need the package gymnasium; {INSTALL}") from None
    # Box2D's bindings warn when they are loaded, and crash the process where warnings are errors.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if workload.environment.startswith("ALE/"):
                return _atari(workload)
            made = gymnasium.make(workload.environment, disable_env_checker=True)
        except TrainingError:
            raise
        except gymnasium.error.DependencyNotInstalled as error:
            raise TrainingError(f"{workload.environment} needs a package: {_told(error)}; {INSTALL}") from None
        except ModuleNotFoundError as error:
            raise TrainingError(f"{workload.environment} needs a module: {_told(error)}; {INSTALL}") from None
        except Exception as error:  # gymnasium's own errors, and whatever a constructor raises
            raise TrainingError(f"{workload.environment} cannot be made: {_told(error)}") from error
    return _stacked(made, workload)


def _atari(workload: Workload) -> Any:
    """The usual preprocessing: up to 30 no-ops first, every 4th frame, the maximum of two, 84x84 in gray."""
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
    made = gymnasium.make(workload.environment, frameskip=1, disable_env_checker=True)
    return _stacked(gymnasium.wrappers.AtariPreprocessing(made, screen_size=(height, width)), workload)


def _stacked(made: Any, workload: Workload) -> Any:
    if workload.observation.frames == 1:
        return made
    from gymnasium.wrappers import FrameStackObservation  # noqa: PLC0415

    return FrameStackObservation(made, workload.observation.frames)


def _told(error: Exception) -> str:
    """An error in one line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}" if words else type(error).__name__
