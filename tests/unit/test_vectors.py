"""Actors of several environments: every row of every environment, in order, once; faults; states restored."""

import numpy as np
import pytest

from impls.replay import LocalStorage
from impls.training import TrainingError, identity, load

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


def test_rows_of_a_vector_are_those_of_single_carts():
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


def test_a_vector_environment_is_taken_where_its_state_is_saved():
    for workload, kind in (
        (carts(), Native),
        (carts("ModeCarts-v0"), Separate),  # it begins an episode in the step that ends the last
        (carts("OpaqueCarts-v0"), Separate),  # no array of it is its whole state
        (fake(actors={"environments": 2}), Separate),
    ):
        actor = actor_of(workload, 0, 0)
        assert isinstance(actor, VectorActor)
        assert isinstance(actor._environments, kind)
        actor.close()
    assert isinstance(actor_of(carts(environments=1), 0, 0), Actor)


FAULTS = {  # what the message names
    "ResetRaises": "reset .*OSError",
    "Raises": "step .*RuntimeError",
    "Nan": "observation .*nan",
    "Shape": r"\[3\], .*\[2\]",
    "NanReward": "reward .*nan",
    "TextReward": "reward .*'plenty'",
    "HugeReward": r"reward .*1e\+39",
    "ResetText": "observation .*<U4",
    "Text": "observation .*<U4",
    "Ragged": "observation .*ValueError",
    "Huge": r"observation .*1e\+39",
    "Flags": r"terminated .*array\(\[ True, False\]\)",
}
FAULTS_OF_CARTS = {
    "ResetRaises": "reset .*OSError",
    "Raises": "step .*RuntimeError",
    "Nan": "observation .*nan",
    "NanReward": "reward .*nan",
    "Shape": r"\[3, 3\], .*\[3, 4\]",
    "Text": "observation .*<U32",
    "Flags": r"terminated .*int64 \[3\]",
    "Flag": r"terminated .*bool \[\]",
    "Reward": r"rewards .*float64 \[\]",
    "Rewards": r"rewards .*<U32 \[3\]",
}


def misbehaving():
    """(workload, what the message names)."""
    yield fake(observation={"dtype": "uint8"}), "float32, .*uint8"
    for name, words in FAULTS.items():
        yield fake(f"{name}-v0"), words
        yield fake(f"{name}-v0", actors={"environments": 2}), words
    for name, words in FAULTS_OF_CARTS.items():
        yield carts(f"{name}Carts-v0"), words


def test_environments_that_misbehave_are_one_sentence():
    for workload, words in misbehaving():
        turns = []
        with pytest.raises(TrainingError, match=words) as refusal:
            actor = actor_of(workload, 0, 0)
            for _ in range(10):
                turns.append(actor.step(policy_of(workload), 0.5, False))
        assert "\n" not in str(refusal.value)
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
def test_a_state_amid_episodes_is_restored_in_any_turn(workload):
    policy = policy_of(workload)
    actor, other = (actor_of(workload, 1, 0) for _ in range(2))
    for _ in range(20):
        actor.step(policy, 0.5, False)
        state = actor.state_dict()
        assert_goes_on(actor, other, lambda each: each.step(policy, 0.5, False), 10)
        actor.load_state_dict(state)
    for each in (actor, other):
        each.close()


def test_environments_that_do_not_repeat_are_not_resumed():
    for workload, cause in (
        (fake("Restless-v0"), "seed and actions"),
        (fake("Restless-v0", actors={"environments": 2}), "seed and actions"),
        (carts("RestlessCarts-v0"), "same state"),
    ):
        actor = actor_of(workload, 0, 0)
        for _ in range(5):
            actor.step(policy_of(workload), 0.5, False)
        with pytest.raises(TrainingError, match=cause):
            actor_of(workload, 0, 0).load_state_dict(actor.state_dict())


def test_actors_and_environments_have_seeds_of_their_own():
    workload = fake("Uneven-v0", actors={"environments": 2})
    actors = [actor_of(workload, number, 3) for number in range(2)]
    firsts = {tuple(each.observation) for actor in actors for each in actor._environments._each}
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


def test_a_workload_keeps_the_identity_of_older_records():
    assert identity(load("cartpole_dqn")) == "0a0f8f13"  # of records made before there were several environments
    assert (
        len({identity(workload) for workload in (carts(), carts(environments=1), tiny(), tiny(optimizer="sgd"))}) == 4
    )
