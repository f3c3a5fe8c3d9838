"""Actors of several environments: every row of every environment, in order, once; faults; states restored."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from impls.replay import LocalStorage
from impls.training import TrainingError, identity, load
from impls.training.workload import RESULTS_ALONE

torch = pytest.importorskip("torch", reason="actors need the extra `train`")
gymnasium = pytest.importorskip("gymnasium", reason="actors need the extra `train`")
from impls.training.actor import ACTING, Actor, Episode, Native, Separate, VectorActor, actor_of, seed_of  # noqa: E402
from impls.training.environments import Environment  # noqa: E402
from impls.training.weights import layout_of  # noqa: E402
from tests.learning import assert_goes_on, change, tiny  # noqa: E402
from tests.system.test_actors import Upright, fake  # noqa: E402

FRAMES = {"shape": (84, 84), "dtype": "uint8", "frames": 4}


class Parity:
    """A policy whose actions and errors an observation alone decides."""

    def act(self, observations, explore, rng):
        return observations.reshape(len(observations), -1).astype(np.int64).sum(axis=1) % 2

    def priorities(self, transitions):
        sums = transitions["reward"] + transitions["next_observation"].reshape(len(transitions["reward"]), -1)[:, -1]
        return sums.astype(np.float32)


def carts(name="FineCarts-v0", environments=3, **changes):
    """CartPole in episodes of at most 12 steps, which has a vector environment."""
    environment = f"tests.fake_environments:{name}"
    return change(load("cartpole_dqn"), environment=environment, environments=environments, **changes)


def policy_of(workload):
    return Upright() if workload.observation.shape == (4,) else Parity()


def one_by_one(workload, turns, number, seed):
    """What an actor hands over in each turn, and its episodes, from environments that are stepped one by one."""
    policy, count, size = Parity(), workload.actors.environments, workload.actors.local_storage
    environments = [Environment(workload) for _ in range(count)]
    storages = [LocalStorage(layout_of(workload), size) for _ in range(count)]
    state = [{"begun": -1, "over": True} for _ in range(count)]
    for turn in range(turns + 1):
        ready, episodes, steps = [], [], 0
        for at, (environment, local, own) in enumerate(zip(environments, storages, state, strict=True)):
            if own["over"]:
                begun = own["begun"] + 1
                seen = environment.reset(seed_of(seed, ACTING, number * count + at, begun))
                own.update(begun=begun, over=False, seen=seen, score=0.0, length=0)
                if turn == 0 or count > 1:  # several environments begin an episode in a turn of its own
                    continue
            action = policy.act(own["seen"][None], 0.0, None)[0]
            following, reward, terminated, truncated = environment.step(action)
            local.append(own["seen"], action, reward, following, terminated)
            own.update(seen=following, score=own["score"] + reward, length=own["length"] + 1)
            steps += 1
            own["over"] = terminated or truncated
            if own["over"] or local.is_full:
                errors = policy.priorities(local.transitions())
                records, drawable = local.take()
                ready.append(({name: part.copy() for name, part in records.items()}, errors, drawable))
            if own["over"]:
                episodes.append(Episode(own["score"], own["length"]))
        if turn:
            yield steps, ready, tuple(episodes)


@pytest.mark.parametrize("environments", [1, 3])
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize(("name", "observation"), [("Uneven-v0", {}), ("UnevenFrames-v0", FRAMES)])
def test_rows_are_those_of_environments_stepped_one_by_one(name, observation, size, environments):
    tables = {"observation": observation, "replay": {"initial_priority": "td_error"}}
    workload = fake(name, actors={"environments": environments, "local_storage": size}, **tables)
    actor = actor_of(workload, 2, seed=5)
    ended, truncated = 0, 0
    for steps, ready, episodes in one_by_one(workload, 60, 2, 5):
        turn = actor.step(Parity(), 0.0, False)
        assert (turn.steps, turn.episodes) == (steps, episodes)
        assert (turn.inserted is None) == (not ready)
        ended += len(episodes)
        truncated += sum(episode.length % 2 == 0 for episode in episodes)
        if ready:
            for part, values in turn.inserted.records.items():
                np.testing.assert_array_equal(values, np.concatenate([records[part] for records, _, _ in ready]))
            np.testing.assert_array_equal(turn.inserted.errors, np.concatenate([errors for _, errors, _ in ready]))
            np.testing.assert_array_equal(turn.inserted.can_sample, np.concatenate([keep for _, _, keep in ready]))
    assert 0 < truncated < ended
    actor.close()


def test_rows_of_a_vector_environment_are_those_of_one_cart_after_the_other():
    actor, single = actor_of(carts(), 0, seed=1), gymnasium.make("CartPole-v1").unwrapped
    assert isinstance(actor._environments, Native)
    single.reset(seed=0)
    lengths, over, ends = np.zeros(3, int), np.zeros(3, bool), []
    for _ in range(150):
        seen, who, episodes = actor._environments.observations, np.flatnonzero(~over), []
        turn = actor.step(Upright(), 0.0, True)
        rows = turn.inserted.records if turn.inserted else {"reward": []}
        assert turn.steps == len(rows["reward"]) == len(who)
        lengths[over], over = 0, np.zeros(3, bool)
        for row, at in enumerate(who):
            np.testing.assert_array_equal(rows["observation"][row], seen[at])
            single.state, single.steps_beyond_terminated = seen[at].astype(float), None
            following, reward, terminated, _, _ = single.step(int(rows["action"][row]))
            np.testing.assert_allclose(rows["next_observation"][row], following, atol=1e-6)
            assert (rows["reward"][row], rows["terminated"][row]) == (reward, terminated)
            lengths[at] += 1
            over[at] = terminated or lengths[at] == 12
            episodes += [(lengths[at], lengths[at])] if over[at] else []
            ends += [bool(terminated)] if over[at] else []
        assert turn.episodes == tuple(episodes)
    assert set(ends) == {True, False}  # some fell, others were cut off
    actor.close()


@pytest.mark.parametrize(
    ("workload", "kind"),
    [
        (carts(), Native),
        (carts("ModeCarts-v0"), Separate),  # it begins an episode in the step that ends the last
        (carts("OpaqueCarts-v0"), Separate),  # no array of it is its whole state
        (fake(actors={"environments": 2}), Separate),
    ],
)
def test_the_own_vector_environment_is_taken_where_its_state_can_be_saved(workload, kind):
    actor = actor_of(workload, 0, 0)
    assert isinstance(actor, VectorActor)
    assert isinstance(actor._environments, kind)
    assert isinstance(actor_of(carts(environments=1), 0, 0), Actor)
    actor.close()


FAULTS = {
    "ResetRaises": "reset raised OSError: no such robot",
    "Raises": "step raised RuntimeError: the motor is on fire badly",
    "Nan": "an observation holds nan",
    "Shape": r"an observation has the shape \[3\], the workload says \[2\]",
    "NanReward": "its reward is nan, which nothing can be learnt from",
    "TextReward": "its reward is 'plenty', not a number",
    "HugeReward": r"its reward is 1e\+39, which nothing can be learnt from; it must be finite in float32",
    "ResetText": "an observation has the dtype <U4, which is not of numbers",
    "Text": "an observation has the dtype <U4, which is not of numbers",
    "Object": "an observation has the dtype object, which is not of numbers",
    "Complex": "an observation has the dtype complex128, which is not of numbers",
    "Ragged": "an observation is no array of numbers: ValueError: .*inhomogeneous",
    "Huge": r"an observation holds 1e\+39, which is not finite in float32",
    "Flags": r"its terminated is array\(\[ True, False\]\), not true or false",
    "NoFlag": "its terminated is None, not true or false",
}
FAULTS_OF_CARTS = {
    "ResetRaises": "reset raised OSError: no such carts",
    "Raises": "step raised RuntimeError: the carts have collided",
    "Nan": "an observation holds nan, which is not finite in float32",
    "NanReward": "its reward is nan, which nothing can be learnt from",
    "Shape": r"an observation has the shape \[3, 3\], the workload says \[3, 4\]",
    "Text": "an observation has the dtype <U32, which is not of numbers",
    "Flags": r"its terminated are int64 \[3\], not true or false of each of 3 environments",
    "Flag": r"its terminated are bool \[\], not true or false of each of 3 environments",
    "Reward": r"its rewards are float64 \[\], not a number of each of 3 environments",
    "Rewards": r"its rewards are <U32 \[3\], not a number of each of 3 environments",
}
MISBEHAVING = [(fake(f"{name}-v0"), words) for name, words in FAULTS.items()]
MISBEHAVING += [(fake(f"{name}-v0", actors={"environments": 2}), words) for name, words in FAULTS.items()]
MISBEHAVING.append((fake(observation={"dtype": "uint8"}), "has the dtype float32, which uint8 does not hold"))
MISBEHAVING += [(carts(f"{name}Carts-v0"), words) for name, words in FAULTS_OF_CARTS.items()]


@pytest.mark.parametrize(("workload", "words"), MISBEHAVING)
def test_environments_that_misbehave_are_one_sentence(workload, words):
    turns = []
    with pytest.raises(TrainingError, match=words) as told:
        actor = actor_of(workload, 0, 0)
        for _ in range(10):
            turns.append(actor.step(policy_of(workload), 0.5, False))
    assert "\n" not in str(told.value)
    if turns and workload.observation.shape == (2,):
        assert sum(turn.steps for turn in turns) == 4 * workload.actors.environments  # what came before the fault


@pytest.mark.parametrize(
    "workload",
    [
        carts(local_storage=5),
        fake("Uneven-v0", actors={"environments": 3, "local_storage": 4}),
        fake("UnevenFrames-v0", observation=FRAMES, actors={"environments": 3, "local_storage": 4}),
    ],
)
def test_a_state_in_the_middle_of_episodes_is_restored_in_any_turn(workload):
    policy = policy_of(workload)
    actor, other = (actor_of(workload, 1, 0) for _ in range(2))
    for _ in range(20):
        actor.step(policy, 0.5, False)
        state = actor.state_dict()
        assert_goes_on(actor, other, lambda each: each.step(policy, 0.5, False), 10)
        actor.load_state_dict(state)
    for each in (actor, other):
        each.close()


@pytest.mark.parametrize(
    ("workload", "cause"),
    [
        (fake("Restless-v0"), "the same seed and actions"),
        (fake("Restless-v0", actors={"environments": 2}), "the same seed and actions"),
        (carts("RestlessCarts-v0"), "the same state"),
    ],
)
def test_environments_that_do_not_repeat_themselves_are_not_resumed(workload, cause):
    actor = actor_of(workload, 0, 0)
    for _ in range(5):
        actor.step(policy_of(workload), 0.5, False)
    with pytest.raises(TrainingError, match=f"{cause} led elsewhere, so no run of it can be resumed"):
        actor_of(workload, 0, 0).load_state_dict(actor.state_dict())


def test_actors_environments_and_episodes_have_seeds_of_their_own():
    workload = fake("Uneven-v0", actors={"environments": 2})
    actors = [actor_of(workload, number, 3) for number in range(2)]
    firsts = {tuple(one.observation) for actor in actors for one in actor._environments._each}
    assert len(firsts) == 4
    native = [actor_of(carts(), number, seed) for number in range(2) for seed in range(2)]
    assert len({actor._environments.observations.tobytes() for actor in native}) == 4


def test_random_actions_are_chosen_for_each_environment():
    workload = fake("Bounded-v0", action={"choices": 0, "size": 2}, actors={"environments": 8})
    for base, kind in ((workload, "ddpg"), (fake(actors={"environments": 8}), "dqn")):
        actor = actor_of(change(base, algorithm=kind), 0, 0)
        actions = actor.step(None, 0.0, True).inserted.records["action"]
        assert actions.shape == ((8, 2) if kind == "ddpg" else (8,))
        assert len(np.unique(actions, axis=0)) == (8 if kind == "ddpg" else 2)


def test_defaults_keep_the_identity_of_records_made_before_they_could_be_others():
    workload = load("cartpole_dqn")
    fields = {key: value for key, value in dataclasses.asdict(workload).items() if key not in RESULTS_ALONE}
    assert (fields["actors"].pop("environments"), fields["learner"].pop("optimizer")) == (1, "adam")
    assert (fields["learner"].pop("entropy"), fields["learner"].pop("gae_lambda")) == (0.01, 1)
    assert fields.pop("model")
    assert identity(workload) == hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]
    assert identity(carts(environments=8)) != identity(carts(environments=1))
    assert identity(tiny(optimizer="sgd")) != identity(tiny())
