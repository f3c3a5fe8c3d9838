"""Copies of RLlib's episodes and of single steps, made without its constructors.

Those find out the structure of the spaces at each call, which takes longer than all else in a buffer's work. So what is
made here is a copy, attribute by attribute, of what a constructor made before, with other data in its columns.
"""

import copy
from typing import Any

import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

_PLAIN = (bool, int, float, str, bytes, type(None), np.generic)
_EMPTY_COLUMN = InfiniteLookbackBuffer()
_EMPTY = SingleAgentEpisode()


def transition(
    episode: Any, step: int, n: int, gamma: float, name: str, outputs: dict[str, Any], with_infos: bool
) -> Any:
    """An episode of one step: what is seen at ``step`` and n steps later, the action, the discounted rewards between.

    ``name`` is its id, ``outputs`` are its ``extra_model_outputs``, a value each.
    """
    end = step + n
    rewards, discounted = episode.rewards, 0.0
    for at in range(end - 1, step - 1, -1):
        discounted = float(_item(rewards, at)) + gamma * discounted
    last = end == len(episode)
    new = _copy_of_slots(_EMPTY)
    new.id_ = name
    new._observation_space, new._action_space = episode._observation_space, episode._action_space
    seen = episode.observations
    new.observations = _column(seen, [_item(seen, step), _item(seen, end)])
    infos = [_item(episode.infos, step), _item(episode.infos, end)] if with_infos else [{}, {}]
    new.infos = _column(_EMPTY_COLUMN, infos)
    new.actions = _column(episode.actions, [_item(episode.actions, step)])
    new.rewards = _column(_EMPTY.rewards, [discounted])
    new.extra_model_outputs = {key: _column(_EMPTY_COLUMN, [value]) for key, value in outputs.items()}
    new.is_terminated, new.is_truncated = last and episode.is_terminated, last and episode.is_truncated
    new.t_started, new.t = step, step + 1
    new._custom_data = {}
    return new


def follows(episode: Any, chunk: Any) -> bool:
    """Whether a chunk continues where an episode stands: RLlib joins no others."""
    goes_on = not episode.is_done and episode.t == chunk.t_started
    return goes_on and _alike(episode.observations[-1], chunk.observations[0])


def copy_of(episode: Any) -> Any:
    """A copy of an episode, as deep as the maker's later changes may reach, but for its spaces."""
    new = _copy_of_slots(episode)
    for name in ("observations", "infos", "actions", "rewards"):
        setattr(new, name, _copy_of_column(getattr(episode, name)))
    new.extra_model_outputs = copy.copy(episode.extra_model_outputs)
    for name, column in episode.extra_model_outputs.items():
        new.extra_model_outputs[name] = _copy_of_column(column)
    new._custom_data = copy.deepcopy(episode._custom_data)
    return new


def _alike(one: Any, other: Any) -> bool:
    """Whether two observations are equal in every part."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    return all(map(_alike, one, other)) if isinstance(one, tuple) else np.array_equal(one, other)


def _item(column: Any, at: int) -> Any:
    return column.get(at) if column.finalized else column.data[column.lookback + at]


def _column(like: Any, data: list[Any]) -> Any:
    """A column that holds the data, of the same space as ``like``, without lookback."""
    new = object.__new__(InfiniteLookbackBuffer)
    new.__dict__.update(like.__dict__)
    new.data, new.lookback, new.finalized = data, 0, False
    return new


def _copy_of_column(column: Any) -> Any:
    new = _column(column, _copy_of_data(column.data))
    new.lookback, new.finalized = column.lookback, column.finalized
    return new


def _copy_of_data(data: Any) -> Any:
    """A deep copy of a column's data; of the usual kinds in a fraction of ``deepcopy``'s time."""
    if isinstance(data, list):
        kinds = set(map(type, data))
        if kinds == {np.ndarray} and not any(item.dtype.hasobject for item in data):
            return [item.copy() for item in data]
        if all(issubclass(kind, _PLAIN) for kind in kinds):
            return list(data)
        if kinds == {dict} and not any(data):
            return [{} for _ in data]
    return copy.deepcopy(data)


def _copy_of_slots(episode: Any) -> Any:
    """An episode whose every attribute is the given one's own."""
    new = object.__new__(SingleAgentEpisode)
    for name in SingleAgentEpisode.__slots__:
        setattr(new, name, getattr(episode, name))
    return new
