"""Learners in parallel: sub-gradients average to the batch's gradient, and weights of models are averaged."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.learning import ALGORITHMS, batch_of, tiny

torch = pytest.importorskip("torch", reason="learners need the extra `train`")
from impls.training.learners import torch_learner as algorithms  # noqa: E402
from impls.training.learners.torch_learner.parallel import ParameterServer, average, cut  # noqa: E402
from impls.training.weights import average as average_weights  # noqa: E402

torch.set_num_threads(1)  # these networks are too small to share
WEIGHTS = np.array([1.0, 0.5, 0.25, 0.75], np.float32)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_sub_gradients_average_to_the_gradient_of_the_batch(algorithm, count):
    workload = tiny(algorithm, hidden=(16, 16))
    whole, server = algorithms.make(workload, seed=1), algorithms.make(workload, seed=1)
    workers = [algorithms.make(workload, seed=9) for _ in range(count)]
    batch, weights = batch_of(workload, 16), np.linspace(0.1, 1, 16).astype(np.float32)
    parallel = ParameterServer(server, workers)
    rows, phase = whole.rows(batch, weights), whole.phases()[0]
    parts = average([whole.gradients(phase, part)[0] for part in cut(rows, count)])
    for part, gradient in zip(parts, whole.gradients(phase, rows)[0], strict=True):
        np.testing.assert_allclose(part, gradient, rtol=1e-4, atol=1e-7)
    whole.load_state_dict(server.state_dict())
    for _ in range(5):
        one, many = whole.step(batch, weights), parallel.step(batch, weights)
        np.testing.assert_allclose(many.priorities, one.priorities, rtol=1e-3, atol=1e-5)
        assert many.losses == pytest.approx(one.losses, rel=1e-3, abs=1e-5)
    for worker in workers:
        for name, value in server.networks.state_dict().items():
            np.testing.assert_array_equal(worker.networks.state_dict()[name], value)


def test_what_a_parameter_server_cannot_do():
    learner = algorithms.make(tiny())
    with pytest.raises(ValueError, match="at least one worker"):
        ParameterServer(learner, [])
    with pytest.raises(ValueError, match="4 rows cannot be cut into 3 equal parts"):
        ParameterServer(learner, [algorithms.make(tiny()) for _ in range(3)]).step(batch_of(tiny()), WEIGHTS)


def test_weights_of_models_are_averaged():
    models = [algorithms.make(tiny(), seed=seed).weights() for seed in range(3)]
    plain, shared = average_weights(models), average_weights(models, [1, 0, 3])
    np.testing.assert_allclose(plain, sum(model.astype(float) for model in models) / 3, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(shared, (models[0] + 3 * models[2]) / 4, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="must have the same weights"):
        average_weights([models[0], models[1][:-1]])
    with pytest.raises(ValueError, match="2 shares for 3 models"):
        average_weights(models, [1, 2])


def test_learners_may_run_at_once():
    with ThreadPoolExecutor(2) as pool:

        def at_once(calls):
            return [future.result() for future in [pool.submit(call) for call in calls]]

        one, many = (
            ParameterServer(algorithms.make(tiny()), [algorithms.make(tiny()) for _ in range(2)], **how)
            for how in ({}, {"run": at_once})
        )
        for _ in range(3):
            found = [server.step(batch_of(tiny()), WEIGHTS).priorities for server in (one, many)]
            np.testing.assert_array_equal(*found)
