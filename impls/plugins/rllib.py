"""RLlib's prioritized replay of episodes on our sum tree, for its API of EnvRunners, RLModules and Learners.

:func:`install` puts the class where RLlib looks for its own, which is the default of DQN and of SAC::

    import impls.plugins.rllib

    impls.plugins.rllib.install()
    config.training(replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 50_000})

DQN takes the name of the class as that type, too, "impls.plugins.rllib.FanoutPrioritizedEpisodeReplayBuffer"; SAC takes
RLlib's names alone. The import is there for its ImportError where ray is another version: RLlib says only that it does
not know the name. RLlib's buffers for several agents, and those of its older API of Policies and RolloutWorkers, have
no counterpart here.

Below: which leaf holds a step's priority, copies of episodes, and the buffer: what is stored, drawn and weighted.
"""

from .hosts import Replacement, require

require("ray", "2.60", "2.61", package="ray[rllib]")

import copy
import math
import os
from array import array
from collections import deque
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

from ..checks import integer_at_least
from ..replay.batches import check_beta
from ..sumtree.arguments import to_numpy as on_host
from ..sumtree.contract import SumTree
from ..sumtree.registry import make
from .priorities import Priorities, kept

Leaves = NDArray[np.int64]
Row = tuple[int, int, int]
"""An episode's number, counted from the first ever stored, a step in it, and the leaf."""


class _Rows:
    """The rows, time steps of stored episodes, each with a leaf of its own.

    Leaves are given out and taken back in the order of RLlib's buffer, so that both put a row at the same leaf: those
    never used from 0 on, those given back first, the last one back before the others.
    """

    def __init__(self, leaves: int) -> None:
        self._facts = np.zeros((leaves, 3), np.int64)  # of each leaf: its episode, the step, the number of the row
        self._ever = 0  # rows so far, those since dropped among them
        self._free = np.arange(leaves)[::-1].copy()
        self._num_free = leaves  # leaves without a row: _free[:_num_free], the next one to be given out last
        self._dropped = 0  # episodes
        self._leaves: deque[array[int]] = deque()  # of each stored episode, step by step

    def __len__(self) -> int:
        return len(self._free) - self._num_free

    def append(self, episode: int, first: int, length: int) -> Leaves:
        """Add steps ``first`` .. first + length - 1 of a stored episode, or of the next one; their leaves."""
        if episode - self._dropped == len(self._leaves):
            self._leaves.append(array("q"))
        leaves = self._free[self._num_free - length : self._num_free][::-1].copy()
        steps = np.arange(length)
        self._facts[leaves] = np.stack([np.full(length, episode), first + steps, self._ever + steps], axis=1)
        self._leaves[episode - self._dropped].frombytes(leaves.tobytes())
        self._num_free -= length
        self._ever += length
        return leaves

    def drop(self, episodes: int) -> Leaves:
        """Forget the oldest episodes; the leaves of their rows, in the order in which those were added."""
        leaves = self._in_order([self._leaves.popleft() for _ in range(episodes)])
        self._free[self._num_free : self._num_free + leaves.size] = leaves
        self._num_free += leaves.size
        self._dropped += episodes
        return leaves

    def between(self, episode: int, start: int, stop: int) -> Leaves:
        """The leaves of steps ``start`` .. stop - 1 of a stored episode."""
        return np.array(self._leaves[episode - self._dropped][start:stop], np.int64)

    def tails(self, length: int) -> Leaves:
        """The leaves of the last ``length`` steps of every episode."""
        tails = [each[max(len(each) - length, 0) :] for each in self._leaves]
        return np.concatenate([np.zeros(0, np.int64), *map(np.asarray, tails)])

    def of(self, leaves: Leaves) -> list[list[int]]:
        """Place among the stored episodes and step of each leaf's row."""
        facts: list[list[int]] = (self._facts[leaves, :2] - [self._dropped, 0]).tolist()
        return facts

    def listed(self) -> list[Row]:
        """Every row, in the order in which they were added."""
        leaves = self._in_order(list(self._leaves))
        return list(zip(*self._facts[leaves, :2].T.tolist(), leaves.tolist(), strict=True))

    def free(self) -> list[int]:
        """The leaves without a row, the next one to be given out first."""
        leaves: list[int] = self._free[: self._num_free][::-1].tolist()
        return leaves

    def load(self, rows: list[Row], free: list[int], episodes: int, dropped: int) -> None:
        """Take what :meth:`listed` and :meth:`free` told of a buffer with N stored and dropped episodes."""
        self._leaves = deque(array("q") for _ in range(episodes))
        for number, (episode, step, leaf) in enumerate(rows):
            self._facts[leaf] = episode, step, number
            self._leaves[episode - dropped].append(leaf)
        self._ever, self._dropped, self._num_free = len(rows), dropped, len(free)
        self._free[: len(free)] = free[::-1]

    def _in_order(self, parts: list["array[int]"]) -> Leaves:
        """The leaves of all parts by the number of their row."""
        leaves = np.concatenate([np.zeros(0, np.int64), *map(np.asarray, parts)])
        return leaves[np.argsort(self._facts[leaves, 2])]


def _binary_nodes(leaves: NDArray[np.float64], combine: np.ufunc, neutral: float) -> list[float]:
    """RLlib's list of a binary tree: the root at 1, the children of i at 2i and 2i + 1, the leaves in its last half."""
    nodes = np.full(2 * leaves.size, neutral)
    nodes[leaves.size :] = leaves
    width = leaves.size // 2
    while width:
        nodes[width : 2 * width] = combine(nodes[2 * width : 4 * width : 2], nodes[2 * width + 1 : 4 * width : 2])
        width //= 2
    listed: list[float] = nodes.tolist()
    return listed


# RLlib's constructors find out the structure of the spaces at each call, which takes longer than all else in a buffer's
# work. So episodes and steps are made as copies of what a constructor made before, with other data in their columns.
_PLAIN = (bool, int, float, str, bytes, type(None), np.generic)
_EMPTY_COLUMN = InfiniteLookbackBuffer()
_EMPTY = SingleAgentEpisode()


def _transition(
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


def _follows(episode: Any, chunk: Any) -> bool:
    """Whether a chunk continues where an episode stands: RLlib joins no others."""
    goes_on = not episode.is_done and episode.t == chunk.t_started
    return goes_on and _alike(episode.observations[-1], chunk.observations[0])


def _copy_of(episode: Any) -> Any:
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


SMALLEST_PRIORITY = 1e-12
"""What RLlib raises smaller priorities to, before the power of alpha."""


class FanoutPrioritizedEpisodeReplayBuffer(PrioritizedEpisodeReplayBuffer):
    """RLlib's ``PrioritizedEpisodeReplayBuffer`` with one K-ary sum tree in place of its two trees in Python lists.

    A row is a time step of a stored episode. For one state of ``rng`` it draws the rows that RLlib's draws, with the
    same weights up to rounding: the same random numbers in the same order, the same leaf for each row. So for n = 1,
    and for any n in a call in which no row is too near to its episode's end.

    RLlib draws such a row and then another in its place. As nobody ever updates its priority, it stays the largest, and
    ever more draws are lost, until a sample does not return. Here such rows have no part in the draws, sums and minimum
    until their episode has grown; of the others each is as likely as in RLlib's. Where n comes from a range, a row is
    never drawn anew but its n, among those that fit.

    What else differs: the tree draws the rows of a call at once, and sets their priorities at once; an eviction touches
    only the rows of its episodes, and a priority for a row that it took is omitted; sums are float64 also where
    priorities come as float32; a mistake is told in one sentence, before anything is stored; spaces are not copied with
    the episodes. It serves one thread and process, as RLlib's.

    Parameters beyond RLlib's: ``implementation`` and ``fanout`` of the tree, as of :func:`impls.make`.
    """

    episodes: deque[Any]  # made by RLlib's classes, the oldest first

    def __init__(
        self,
        capacity: int = 10000,
        *,
        batch_size_B: int = 16,
        batch_length_T: int = 1,
        alpha: float = 1.0,
        metrics_num_episodes_for_smoothing: int = 100,
        implementation: str = "numba",
        fanout: int = 16,
        **kwargs: Any,
    ) -> None:
        capacity = integer_at_least("capacity", capacity, 1)
        # As many leaves as RLlib's trees have, for an only episode may exceed the capacity, and states go both ways.
        leaves = 2 << (capacity - 1).bit_length()
        tree = make(implementation, leaves, fanout=fanout, dtype="float64", minimum=True)
        self.priorities = Priorities(tree, alpha)
        self._rows = _Rows(leaves)
        # Invariant: the priority of a row that fewer than ``_shortest`` steps follow is here, and 0 in the tree.
        self._waiting = np.zeros(leaves)
        self._shortest = 1
        EpisodeReplayBuffer.__init__(  # not the next class's, which makes two trees
            self,
            capacity,
            batch_size_B=batch_size_B,
            batch_length_T=batch_length_T,
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing,
            **kwargs,
        )
        self._last_sampled_indices: list[int] = []

    _alpha, _max_priority = kept("alpha"), kept("largest")

    @property
    def tree(self) -> SumTree:
        """The tree: priority**alpha of each row, 0 at leaves without one or too near to an end for the last sample."""
        return self.priorities.tree

    @property
    def _indices(self) -> list[Row]:
        """What RLlib's classes keep in a list."""
        return self._rows.listed()

    @_indices.setter
    def _indices(self, rows: list[Row]) -> None:
        """RLlib's classes set an empty list when they are made, and another one only in ``set_state``."""

    # What RLlib's class keeps, for callbacks that read it: copies, so that nothing is changed by writing to them.

    @property
    def _sum_segment(self) -> NDArray[np.float64]:
        return _frozen(self.tree.state_dict()["leaves"] + self._waiting)

    @property
    def _min_segment(self) -> NDArray[np.float64]:
        leaves = self._sum_segment
        return _frozen(np.where(leaves > 0, leaves, math.inf))

    @property
    def _free_nodes(self) -> tuple[int, ...]:
        return tuple(self._rows.free())

    @property
    def _max_idx(self) -> int:
        return max(self._tree_idx_to_sample_idx, default=0)

    @property
    def _tree_idx_to_sample_idx(self) -> dict[int, int]:
        return {leaf: row for row, (_, _, leaf) in enumerate(self._indices)}

    def get_num_timesteps(self, module_id: Any = None) -> int:
        """Return how many rows are stored."""
        return len(self._rows)

    def add(self, episodes: Any, weight: float | None = None) -> None:
        """Store copies of one or more episodes, or of chunks of them, and evict the oldest where capacity is short.

        Each row begins with the priority ``weight``, or else with the largest so far. A chunk joins the episode of its
        id; it is dropped if that one is evicted by this very call. Raises, before anything is stored, TypeError (no
        episode of a single agent) and ValueError (several new episodes that exceed the capacity together, an episode
        that exceeds the tree, a chunk that does not follow what is stored of its episode, a weight that is negative or
        not finite).
        """
        chunks = _single_agent([episodes] if isinstance(episodes, SingleAgentEpisode) else list(episodes))
        priority = (self._max_priority if weight is None else float(weight)) ** self._alpha
        if weight is not None and not 0 <= weight < math.inf:
            raise ValueError(f"weight must be at least 0 and finite, not {weight}")
        self._check_order(chunks)
        oldest = list(islice(self.episodes, self._evictions(chunks)))
        evicted = {episode.id_ for episode in oldest}
        known = len(self.episodes)

        freed = self._rows.drop(len(oldest))
        self._waiting[freed] = 0.0
        gone = set(freed.tolist()).intersection(self._last_sampled_indices)
        self._last_sampled_indices = [-1 if leaf in gone else leaf for leaf in self._last_sampled_indices]
        for episode in oldest:
            self.episodes.popleft()
            del self.episode_id_to_index[episode.id_]
        self._num_episodes_evicted += len(oldest)
        before = len(self._rows)
        ready = [self._store(_copy_of(chunk), priority) for chunk in chunks if chunk.id_ not in evicted]
        # Of equal leaves the last counts: one that was freed and taken ends with the new row's priority.
        changed = np.concatenate([freed, *ready])
        priorities = self._waiting[changed]
        priorities[: freed.size] = 0.0
        self.tree.update(changed, priorities)
        self._waiting[changed[freed.size :]] = 0.0
        self._num_timesteps = len(self._rows)
        added = self._num_timesteps - before
        self._num_timesteps_added += added
        counts = _counts(
            num_episodes_added=len(self.episodes) + len(oldest) - known,
            num_env_steps_added=added,
            num_episodes_evicted=len(oldest),
            num_env_steps_evicted=freed.size,
        )
        self._update_add_metrics(**counts)

    def _check_order(self, chunks: list[Any]) -> None:
        """ValueError for a chunk that does not continue where its episode stands."""
        first, at = self._num_episodes_evicted, dict[str, Any]()
        for chunk in chunks:
            index = self.episode_id_to_index.get(chunk.id_)
            before = at.get(chunk.id_) or (None if index is None else self.episodes[index - first])
            if before is not None and not _follows(before, chunk):
                held = f"{before.t}{' and is over' * before.is_done}, and a chunk from step {chunk.t_started} on"
                remedy = "add its chunks in order, and another episode by an id of its own"
                raise ValueError(f"episode {chunk.id_} is stored up to step {held} does not follow: {remedy}")
            at[chunk.id_] = chunk

    def _evictions(self, chunks: list[Any]) -> int:
        """How many of the oldest episodes must go for the chunks to fit; an only episode may exceed the capacity."""
        coming: dict[str, int] = {}
        for chunk in chunks:
            coming[chunk.id_] = coming.get(chunk.id_, 0) + len(chunk)
        rows = len(self._rows) + sum(coming.values())
        remaining = len(self.episodes) + sum(name not in self.episode_id_to_index for name in coming)
        count = 0
        for episode in self.episodes:
            if rows <= self.capacity or remaining == 1:
                break
            rows -= len(episode) + coming.get(episode.id_, 0)
            remaining -= 1
            count += 1
        if rows > self.capacity and remaining != 1:
            remedy = "raise the capacity, or add them one by one"
            raise ValueError(f"{remaining} episodes of {rows} steps exceed the capacity of {self.capacity}: {remedy}")
        if rows > len(self.tree):
            raise ValueError(f"an episode of {rows} steps exceeds the tree's {len(self.tree)}: raise the capacity")
        return count

    def _store(self, chunk: Any, priority: float) -> NDArray[np.int64]:
        """Append a chunk to its episode; the leaves of the rows, all waiting, that enough steps follow by now."""
        length, first = len(chunk), 0
        if (index := self.episode_id_to_index.get(chunk.id_)) is None:
            index = self.episode_id_to_index[chunk.id_] = len(self.episodes) + self._num_episodes_evicted
            self.episodes.append(chunk)
        else:
            episode = self.episodes[index - self._num_episodes_evicted]
            first = len(episode)
            episode.concat_episode(chunk)
        self._waiting[self._rows.append(index, first, length)] = priority
        fewer = self._shortest - 1
        return self._rows.between(index, max(first - fewer, 0), max(first + length - fewer, 0))

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,
        batch_length_T: int | None = None,
        n_step: int | tuple[int, int] | None = None,
        beta: float = 0.0,
        gamma: float = 0.99,
        include_infos: bool = False,
        include_extra_model_outputs: bool = False,
        to_numpy: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """B transitions (o_t, a_t, r_t + .. + gamma**(n-1) r_(t+n-1), o_(t+n)), each an episode of one step.

        Row t is drawn with probability p_t / total, p = priority**alpha, among those that n steps follow. In
        ``extra_model_outputs`` "weights" is (p_t / smallest p)**-beta [Schaul2016] and "n_step" is n. ``n_step``: n, or
        the half-open range from which each row's n is drawn, as far as its episode reaches; ``num_items``: another name
        of ``batch_size_B``; ``batch_length_T`` is ignored, as by RLlib's. A call with another least n than the last one
        looks at every episode. Raises ValueError (negative beta, n below 1, an empty range, both names of B, no episode
        as long as n) and RuntimeError (no row that n steps follow has a priority above 0).
        """
        if num_items is not None and batch_size_B is not None:
            raise ValueError(f"give num_items ({num_items}) or batch_size_B ({batch_size_B}), not both")
        check_beta(beta)
        batch = integer_at_least("batch_size_B", num_items or batch_size_B or self.batch_size_B, 1)
        leaves, priorities, steps, redrawn = self._draw(batch, n_step or 1)
        weights = self.priorities.weights(priorities, beta).tolist()
        names = os.urandom(16 * batch).hex()
        sampled = []
        for j, (episode, step, n) in enumerate(steps):
            outputs = {"weights": weights[j], "n_step": n}
            if include_extra_model_outputs:
                outputs |= {key: episode.get_extra_model_outputs(key, step) for key in episode.extra_model_outputs}
            name = names[32 * j : 32 * j + 32]
            sampled.append(_transition(episode, step, n, gamma, name, outputs, include_infos))
            if to_numpy:
                sampled[-1].to_numpy()
        self._last_sampled_indices = leaves
        self.sampled_timesteps += batch
        counts = _counts(
            num_env_steps_sampled=batch,
            num_episodes_per_sample=len({id(episode) for episode, _, _ in steps}),
            num_env_steps_per_sample=len(set(leaves)),
            sampled_n_step=sum(n for _, _, n in steps) / batch,
            num_resamples=redrawn,
        )
        self._update_sample_metrics(**counts)
        return sampled

    def _draw(self, batch: int, n_step: Any) -> tuple[list[int], NDArray[np.float64], list[tuple[Any, int, int]], int]:
        """Leaves ``[B]``, their priorities, (episode, step, n) of each, and how many of the n were drawn again."""
        low, high = n_step if isinstance(n_step, tuple) else (n_step, None)
        before, shortest = self._shortest, integer_at_least("n_step", low, 1)
        if high is not None:
            integer_at_least("the end of n_step", high, low + 1)
        self._wait(shortest)
        if self.tree.total() == 0:
            self._wait(before)
            longest = max(map(len, self.episodes), default=shortest)
            if longest < shortest:
                raise ValueError(f"n_step is {shortest}, and the longest of the stored episodes has {longest} steps")
            said = f"nothing to sample: no row that n_step = {shortest} steps of its episode follow has a priority"
            raise RuntimeError(f"{said} above 0; give add() no weight, or one above 0")
        if high is None:
            uniforms, lengths = self.rng.random(batch), [low] * batch
        else:
            pairs = [(self.rng.random(), int(self.rng.integers(low, high))) for _ in range(batch)]
            uniforms, lengths = np.array([pair[0] for pair in pairs]), [pair[1] for pair in pairs]
        found, priorities = map(on_host, self.tree.sample(uniforms))
        steps, redrawn = [], 0
        for (place, step), wanted in zip(self._rows.of(found), lengths, strict=True):
            episode, n = self.episodes[place], wanted
            if n > (left := len(episode) - step):
                n, redrawn = int(self.rng.integers(low, left + 1)), redrawn + 1  # so that all that fit are as likely
            steps.append((episode, step, n))
        return found.tolist(), priorities, steps, redrawn

    def _wait(self, shortest: int) -> None:
        """Let the rows that fewer than ``shortest`` steps follow wait, and no others."""
        if shortest == self._shortest:
            return
        back, tails = np.flatnonzero(self._waiting), self._rows.tails(shortest - 1)
        self.tree.update(back, self._waiting[back])
        self._waiting[:] = 0.0
        self._waiting[tails] = on_host(self.tree.get(tails))
        self.tree.update(tails, 0.0)
        self._shortest = shortest

    def update_priorities(self, priorities: ArrayLike, module_id: Any = None) -> None:
        """Set the priorities ``[B]`` (errors in absolute value) of the rows that the last :meth:`sample` returned.

        Of a row that was drawn twice the last counts; one that was evicted meanwhile is omitted. Raises ValueError,
        with nothing written, for another number of priorities (those of a sample can be set once) and for one that is
        NaN or infinite.
        """
        errors = on_host(priorities).reshape(-1)
        if errors.size != (expected := len(self._last_sampled_indices)):
            raise ValueError(f"{expected} rows of the last sample wait for their priorities, and {errors.size} came")
        if not expected:
            return
        leaves = np.array(self._last_sampled_indices)
        self.priorities.update(leaves, np.maximum(errors, SMALLEST_PRIORITY, dtype=np.float64), leaves >= 0)
        self._last_sampled_indices = []

    def get_state(self) -> dict[str, Any]:
        """A copy of all that is stored, which RLlib's buffer of this capacity takes too, and the state of ``rng``."""
        stored = self.episodes
        self.episodes = deque(map(_copy_of, stored))  # RLlib's state shares its lists with the episodes
        try:
            state: dict[str, Any] = EpisodeReplayBuffer.get_state(self)
        finally:
            self.episodes = stored
        return state | {
            "_sum_segment": _binary_nodes(self._sum_segment, np.add, 0.0),
            "_min_segment": _binary_nodes(self._min_segment, np.minimum, math.inf),
            "_free_nodes": list(self._free_nodes),
            "_max_priority": float(self._max_priority),
            "_max_idx": self._max_idx,
            "_tree_idx_to_sample_idx": list(self._tree_idx_to_sample_idx.items()),
            "_last_sampled_indices": list(self._last_sampled_indices),
            "rng": self.rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take a state of this class, at any fanout, or of RLlib's, in place of what is stored.

        Raises ValueError, before anything is written, for a state of more leaves than this buffer has.
        """
        size, held = len(self.tree), len(state["_sum_segment"]) // 2
        if held > size:
            raise ValueError(f"the state has {held} leaves and this buffer {size}: make it of the capacity of that one")
        leaves = np.zeros(size)
        leaves[:held] = state["_sum_segment"][held:]
        self.tree.load_state_dict({"leaves": leaves, "capacity": size, "dtype": "float64"})
        self._waiting[:], self._shortest = 0.0, 1
        self.episodes = deque()  # RLlib's set_state keeps what is there
        EpisodeReplayBuffer.set_state(self, state)
        self.episodes = deque(map(_copy_of, self.episodes))
        free = [*state["_free_nodes"], *range(held, size)]
        self._rows.load(state["_indices"], free, len(self.episodes), self._num_episodes_evicted)
        self._max_priority = float(state["_max_priority"])
        self._last_sampled_indices = list(state["_last_sampled_indices"])
        if "rng" in state:
            self.rng.bit_generator.state = state["rng"]


def _frozen(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values.flags.writeable = False
    return values


def _single_agent(episodes: list[Any]) -> list[Any]:
    for episode in episodes:
        if not isinstance(episode, SingleAgentEpisode):
            raise TypeError(f"this buffer stores RLlib's SingleAgentEpisode, not {type(episode).__name__}")
    return episodes


def _counts(**counts: float) -> dict[str, Any]:
    """What RLlib logs of a call: the counts, and again those of its only agent and of its only module."""
    again = {name.replace("env_", ""): count for name, count in counts.items()}
    agent = {f"agent_to_{name}": {DEFAULT_AGENT_ID: count} for name, count in again.items()}
    module = {f"module_to_{name}": {DEFAULT_MODULE_ID: count} for name, count in again.items()}
    return counts | agent | module


_NAME = "PrioritizedEpisodeReplayBuffer"
_PACKAGE = "ray.rllib.utils.replay_buffers"
_replacement = Replacement((_PACKAGE, _NAME), (f"{_PACKAGE}.prioritized_episode_buffer", _NAME))


def install() -> None:
    """Let RLlib make our buffer wherever ``PrioritizedEpisodeReplayBuffer`` is asked for, until :func:`uninstall`.

    ``replay_buffer_config`` takes ``implementation`` and ``fanout`` of the tree, too. Only this process is changed:
    where the algorithm is built in another one, as by Tune, call this there.
    """
    _replacement.put({_NAME: FanoutPrioritizedEpisodeReplayBuffer})


def uninstall() -> None:
    """Give RLlib its own buffer back; algorithms and buffers made meanwhile keep ours."""
    _replacement.undo()
