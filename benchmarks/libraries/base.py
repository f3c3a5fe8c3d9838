"""The roles in which a library is timed, and how each is found by its name.

An adapter checks and converts nothing: what it is given is what ``place`` returned, made outside of the clock. It
imports its library when it is made, so that whatever is not installed can be listed all the same.
"""

import contextlib
import copy
import dataclasses
import importlib
import importlib.util
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

import impls
from impls import training
from impls.training.workload import Workload

from ..cases import Leniency
from . import rows

FAULTS = 1e-3  # fraction of a batch that may be out of range or of priority 0 with float32 sums: accuracy.py counts it
ALPHA, BETA, EPSILON = 0.6, 0.4, 1e-6  # of every buffer, where the library takes them
FILL_ROWS = 10_000
OURS, PYTHON = "ours", "python tree"  # kinds of replay that a host is timed on, besides its own
PUBLIC = ("update", "get", "sample", "sample_distinct", "prefix_sum_index", "prefix_sum", "range_sum", "total", "min")
Methods = tuple[type, Sequence[str]]  # a class, and the methods in which its time is spent


class Role(ABC):
    """A thing that a library is timed as: a class of its file, where a private class states what its roles share."""

    name: ClassVar[str]
    package: ClassVar[str]  # the distribution, installed without what it says it needs
    alone: ClassVar[tuple[str, ...]] = ()  # others that are installed so
    needs: ClassVar[tuple[str, ...]] = ()  # distributions that this role needs besides, installed with their own needs
    limits: ClassVar[tuple[str, ...]] = ()  # what it cannot do, what its time includes, and what it leaves out
    needs_install: ClassVar[bool] = True  # whether it is here once ``benchmarks.install`` has run, and not before
    fanout: ClassVar[int] = 2  # children of a node of its sum tree

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__module__.rpartition(".")[2]

    @classmethod
    def check(cls) -> None:
        """Make a small one. Whatever a library raises where that cannot be done."""
        raise NotImplementedError


R = TypeVar("R", bound=Role)


@cache
def roles(role: type[R]) -> dict[str, type[R]]:
    """Return every class of a role by its name, installed or not; names are sorted."""
    found = {}
    for _, file, _ in pkgutil.iter_modules([str(Path(__file__).parent)]):
        module = importlib.import_module(f"{__package__}.{file}")
        for label, kind in vars(module).items():
            is_own = isinstance(kind, type) and kind.__module__ == module.__name__ != __name__ and label[0] != "_"
            if is_own and issubclass(kind, role):
                found[kind.name] = kind
    return dict(sorted(found.items()))


def make(role: type[R], name: str, *shape: Any, **options: Any) -> R:
    """Make what has a role. RuntimeError with one sentence where its library is not here or cannot be loaded."""
    kind = roles(role)[name]
    with loading(name, "; try: make peers" if kind.needs_install else ""):
        return kind(*shape, **options)


@contextlib.contextmanager
def loading(name: str, remedy: str) -> Iterator[None]:
    """RuntimeError with one sentence where a library that is used within is not here, or cannot be loaded."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise RuntimeError(f"{name} needs the module {error.name!r}, which is not installed{remedy}") from error
    except (ImportError, OSError) as error:
        raise RuntimeError(f"{name} cannot be loaded: {str(error).splitlines()[0]}") from error


class Tree(Role):
    """Another library's sum tree under the contract's names, each member by the library's fastest call."""

    source: ClassVar[tuple[str, str, str]]  # package, file and class of a tree that needs no more than its capacity
    rule: ClassVar[str]  # the library's own interval rule
    dtypes: ClassVar[tuple[str, ...]] = ("float64",)  # of its sums and leaves
    power_of_two: ClassVar[bool] = False  # whether a capacity must be one; the next is taken
    leniency = Leniency()  # what the gate forgives; an instance adds the rounding of its dtype
    device: ClassVar[str] = "cpu"  # or "cuda": timed by `make gpu`, on a machine that has one

    def __init__(self, capacity: int, dtype: str) -> None:
        self.capacity, self.dtype = capacity, np.dtype(dtype)
        self.slots = 1 << (capacity - 1).bit_length() if self.power_of_two else capacity
        rounding, faults = (1e-3, FAULTS) if dtype == "float32" else (1e-9, 0.0)  # float32 drifts from the fill on
        self.leniency = dataclasses.replace(self.leniency, tolerance=rounding, faults=faults)
        self._allocate()

    def _allocate(self) -> None:
        """Import the library and make its tree of ``slots`` leaves."""
        package, path, kind = self.source
        self._tree = getattr(file_of(package, path), kind)(self.slots)

    def update(self, indices: Any, priorities: Any) -> None:
        """Set the priorities ``[B]`` of leaves ``[B]`` and their ancestors."""
        self._tree[indices] = priorities

    def get(self, indices: Any) -> Any:
        """Return the priorities ``[B]`` of leaves ``[B]``."""
        return self._tree[indices]

    @abstractmethod
    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        """Sample leaves ``[B]`` and their priorities, by uniforms in [0, 1) if the library takes them."""

    @abstractmethod
    def prefix_sum_index(self, mass: Any) -> Any:
        """Return the leaves ``[B]`` that prefix values fall on; NotImplementedError where the library takes none."""

    @abstractmethod
    def total(self) -> float:
        """Return the sum of all priorities, as the root has it."""

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        """Convert a batch into what the library takes without conversion."""
        return array

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Fill every leaf by one update."""
        self.update(self.place(np.arange(self.capacity)), self.place(state["leaves"].astype(np.float64)))

    @classmethod
    def after_install(cls) -> None:
        """Do what is left once the library is installed; ImportError where it fails."""
        return

    @classmethod
    def check(cls) -> None:
        cls.after_install()
        cls(8, cls.dtypes[0])

    def synchronize(self) -> None:
        """Wait until the device has finished; nothing on a CPU."""
        return

    def modeled_seconds(self, op: str, batch: int) -> None:
        """Return None, for libraries are timed and not modeled."""
        return


def tree_names(device: str = "cpu") -> tuple[str, ...]:
    """Return the libraries whose tree lies on this device, "cpu" or "cuda"."""
    return tuple(name for name, kind in roles(Tree).items() if kind.device == device)


def make_tree(name: str, capacity: int, *, dtype: str = "float64", fanout: int = 2, threads: int = 1) -> Tree:
    """Make a library's tree, as ``impls.make`` makes ours. RuntimeError with one sentence if it cannot be made here,
    ValueError for a dtype, fanout or threads that it does not have."""
    kind = roles(Tree)[name]
    if dtype not in kind.dtypes or (fanout, threads) != (kind.fanout, 1):
        raise ValueError(f"{name} has {' or '.join(kind.dtypes)} sums, fanout {kind.fanout} and one thread")
    return make(Tree, name, capacity, dtype)


def file_of(package: str, path: str) -> ModuleType:
    """Import one module of an installed package by its file, without importing the package around it.

    The tree is a small part of some frameworks, and the rest has many dependencies that nothing here uses.
    """
    installed = importlib.util.find_spec(package)
    if installed is None or not installed.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    file = Path(installed.submodule_search_locations[0]) / path
    spec = importlib.util.spec_from_file_location(f"{package}.{file.stem} alone", file)
    if spec is None or spec.loader is None or not file.exists():
        raise ImportError(f"{package} has no {path} any more")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Buffer(Role):
    """A prioritized buffer of ``rows.LAYOUT`` under common names, each operation by the library's fastest call.

    Records and errors arrive as ``place`` and ``place_errors`` return them.
    """

    package = "numba"
    dtype: ClassVar[str] = "float64"  # of its priorities
    retrieves: ClassVar[bool] = False  # whether its priorities can be asked for
    clustered: ClassVar[bool] = False  # whether it lies on the nodes of a Ray cluster
    inherited: ClassVar[bool] = False  # whether only a process that is started with a shared one can attach to it

    def __init__(self, capacity: int, seed: int = 0, **options: Any) -> None:
        self.capacity = capacity
        self._allocate(seed, **options)

    @abstractmethod
    def _allocate(self, seed: int, **options: Any) -> None:
        """Import the library and make its empty buffer of ``capacity`` records."""

    @abstractmethod
    def insert(self, placed: Any) -> None:
        """Insert records that ``place`` has converted."""

    @abstractmethod
    def sample(self, batch: int) -> Any:
        """Sample B = ``batch`` records with their importance weights."""

    @abstractmethod
    def update(self, sampled: Any, errors: Any) -> None:
        """Set the priorities of sampled records from |TD errors| ``[B]``."""

    def retrieve(self, sampled: Any) -> Any:
        """Return the priorities ``[B]`` that sampled records have by now, 0 of those overwritten since."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def records(self, sampled: Any) -> rows.Rows:
        """Return the sampled records ``[B, ...]`` of each field, under our names."""

    @abstractmethod
    def weights(self, sampled: Any) -> Any:
        """Return the importance weights ``[B]`` of a sample, as NumPy has them."""

    def keep(self, sampled: Any) -> Any:
        """Return what ``update`` takes of a sample, valid after other samples."""
        return sampled

    def place(self, records: rows.Rows) -> Any:
        """Convert records into what ``insert`` takes."""
        return records

    def place_errors(self, errors: Any) -> Any:
        """Convert |TD errors| into what ``update`` takes."""
        return errors

    def wait(self) -> None:
        """Wait until work that calls have only begun is done; nothing for most."""
        return

    def fill(self) -> None:
        """Insert as many records as there is room for."""
        step = min(FILL_ROWS, part_of(self.capacity))
        for first in range(0, self.capacity, step):
            self.insert(self.place(rows.made(np.arange(first, min(first + step, self.capacity)))))

    @classmethod
    def check(cls) -> None:
        cls(100)


def part_of(capacity: int) -> int:
    """Return how many records any buffer of this capacity takes at once, even in one of several banks."""
    return max(1, capacity // 4)


class Loop(Role):
    """A library's DQN or SAC on a workload. A turn is a step of each environment, then the gradient steps that are due.

    Settings are the workload's, by the library's own calls.
    """

    beside: ClassVar[tuple[str, ...]] = ()  # of its ``distributions``, those that are not the library's
    replay: ClassVar[str] = "prioritized"  # or "uniform"
    environments: ClassVar[tuple[int, ...]] = (1,)  # numbers of environments that it is timed with
    has_dqn: ClassVar[bool] = True
    sac_limits: ClassVar[tuple[str, ...] | None] = None  # the limits of its SAC; None: only its DQN is run
    is_ours: ClassVar[bool] = False

    @classmethod
    def distributions(cls) -> tuple[str, ...]:
        """Return the distributions whose versions a record names, the library's own first."""
        return cls.package, *cls.beside

    def __init__(self, workload: Workload, environments: int, seed: int) -> None:
        self.workload, self.count, self.seed = workload, environments, seed
        self.steps = 0
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Import the library and make environments, networks and buffer."""

    @abstractmethod
    def turn(self) -> None:
        """Step every environment once, count that in ``steps``, and take the gradient steps that are due."""

    def run(self, until: float) -> list[float]:
        """Take turns until a moment, one at least; return when each ended. Moments are ``perf_counter``'s."""
        ended: list[float] = []
        # Invariant: ``ended`` has the moment at which each turn of the block ended.
        while not ended or ended[-1] < until:
            self.turn()
            ended.append(time.perf_counter())
        return ended

    @property
    @abstractmethod
    def updates(self) -> int:
        """Gradient steps taken so far, as the library or its optimizer counts them."""

    @property
    @abstractmethod
    def weights(self) -> int:
        """Trained weights of the network of action values."""

    @property
    def remark(self) -> str:
        """What to know of its time, limits aside; "" for most."""
        return ""

    def copy_policy(self) -> Any:
        """Return a copy of the weights that act; None where the library shows none."""
        return None

    def load_policy(self, weights: Any) -> None:
        """Act by other weights, where the library takes some."""
        return

    def close(self) -> None:
        """End what the library has started next to this process; nothing for most."""
        return

    def environment(self) -> Any:
        """Make an environment, without the wrapper that checks each step."""
        import gymnasium  # noqa: PLC0415  # optional

        return gymnasium.make(self.workload.environment, disable_env_checker=True)

    @classmethod
    def check(cls) -> None:
        cls(training.load("cartpole_dqn"), 1, 0).close()


class TorchLoop(Loop):
    """A library on torch, on one thread; gradient steps are those of the optimizer that takes the first."""

    beside = ("torch", "numpy", "gymnasium")
    policy: Any  # torch's module that acts, which is trained in place: of action values, or SAC's policy

    def __init__(self, workload: Workload, environments: int, seed: int) -> None:
        import torch  # noqa: PLC0415  # optional
        from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self._updates, self._first = 0, None
        register_optimizer_step_post_hook(self._count)
        super().__init__(workload, environments, seed)

    def _count(self, optimizer: Any, *_: object) -> None:
        self._first = self._first or optimizer
        self._updates += optimizer is self._first

    @property
    def updates(self) -> int:
        """Steps of the first optimizer: SAC has one for each of its networks."""
        return self._updates

    @property
    def weights(self) -> int:
        """Weights of what acts that are trained."""
        return sum(parameter.numel() for parameter in self.policy.parameters() if parameter.requires_grad)

    def copy_policy(self) -> Any:
        return copy.deepcopy(self.policy.state_dict())

    def load_policy(self, weights: Any) -> None:
        self.policy.load_state_dict(weights)

    def act(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Choose actions ``[A, n]`` in [-1, 1] by SAC's policy without exploration, for observations ``[A, ..]``."""
        import torch  # noqa: PLC0415  # loaded by now

        with torch.no_grad():
            return np.asarray(torch.tanh(self._means(torch.as_tensor(observations))))

    def _means(self, observations: Any) -> Any:
        """Means ``[A, n]`` of the policy's Gaussians, which tanh takes to actions."""
        raise NotImplementedError


class Host(Role):
    """A library with a replay of its own, which a plug-in of ours, ``impls.plugins.<name>``, can take the place of.

    Its *kinds* are what is compared, each with its training loop; the first is the library's own.
    """

    module: ClassVar[str]  # which tells, if it is there, that the library is installed
    buffers: ClassVar[type[Buffer]]  # takes the kind
    kinds: ClassVar[tuple[str, ...]]
    loops: ClassVar[tuple[type[Loop], ...]]  # of each kind
    tasks: ClassVar[tuple[str, ...]] = ("buffer", "cartpole_dqn")
    uniform: ClassVar[tuple[str, ...]] = ()  # kinds that know no priorities

    def buffer(self, kind: str, capacity: int, seed: int) -> Buffer:
        """Make the empty buffer of a kind. ImportError or RuntimeError where it cannot be made."""
        return self.buffers(capacity, seed, kind=kind)

    def loop(self, task: str, kind: str, seed: int) -> Loop:
        """Make the training loop of a task on the replay of a kind."""
        return self.loops[self.kinds.index(kind)](training.load(task), 1, seed)

    @abstractmethod
    def trees(self) -> Iterable[Methods]:
        """Return the classes of the library's own trees."""

    def methods(self, kind: str) -> list[Methods]:
        """Return the classes of the trees under a kind, and their methods; none where it samples uniformly."""
        if kind in self.uniform:
            return []
        if kind == self.kinds[0]:
            return list(self.trees())
        kinds: Any = impls.traits("python" if kind == PYTHON else "numba")
        return [(kinds, [name for name in PUBLIC if hasattr(kinds, name)])]

    @classmethod
    def check(cls) -> None:
        importlib.import_module(f"impls.plugins.{cls.name}")


@cache
def hosts() -> dict[str, Host]:
    """Return every host by its name, installed or not."""
    return {name: kind() for name, kind in roles(Host).items()}
