"""L banks [Zhang2022, section 5.2.2.1], each a tree, a ring and a mutex of its own, for L learners side by side.

Inserts go to the banks in turn [Zhang2022, Alg. 6]; within a bank everything is as in ``two_lock_checked``. A batch
comes from one bank, a learner's own, or in equal shares from all that hold something. A bank samples by its own sum
S_j of priorities, which Eq. 5.4 corrects to what one tree of the sum S would sample: with m banks,

    w_i = m S_j / S * (1 / (N P(i)))^beta,    P(i) = p_i / S

so that for any beta a gradient is expected to be that of one tree. For beta 1, w_i = 1 / (N Q(i)), where Q(i) =
p_i / (m S_j) is the probability with which i is sampled from the m banks. Weights of a batch from all banks are divided
by their largest. Those of one bank are not: learners average their gradients, hence need weights of one scale.

As printed, Eq. 5.4 takes S_j / S for a constant, which is biased where the sums differ. (The constant is printed as
1 / N with "N the total number of data points"; for equal sums it is one over the number of banks.)
"""

import itertools
import os
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...checks import integer_at_least, one_of
from ...sumtree.kernels.header import HEIGHT, SUMS, kernel
from ...sumtree.lanes import load_i64, load_real, store_i64, store_real, word_of
from .. import sampling, tree_lock
from ..batches import Outputs, check_beta, uniforms_of
from ..block import BANK, COUNT, LARGEST, Memory
from ..blocks import Kernels, Settings
from ..buffer import Batch
from ..replay import Replay
from ..steps import DONE, NOT_FINITE, NOTHING
from ..sync import inner
from ..updating import are_finite
from . import two_lock_checked_strategy as checked

_WORD, _REAL = 8, 4
_ALL_BANKS = -1
_WEIGHTS = ("exact", "printed")


@kernel()
def insert(trial: int, view: int, views: Any, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
    largest, bank = 0.0, word_of(view, BANK)
    for other in views:
        largest = max(largest, load_real(word_of(other, BANK) + LARGEST, 0.0))
    if largest > load_real(bank + LARGEST, 0.0):  # the largest priority is that of all banks
        tree_lock.enter(view)
        store_real(bank + LARGEST, max(largest, load_real(bank + LARGEST, 0.0)))
        tree_lock.leave(view)
    return checked.put(trial, view, source, count, errors, keep, exponent)


@inner
def _list_places(whole: Any, parts: int, part: int, values: Any, places: Any, numbers: Any, number: int) -> int:
    """List the places whose value in [0, 1) lies in one of N equal parts, and stretch the part to [0, 1)."""
    count = 0
    for j in range(values.size):
        # Invariant: places[:count] are the places before j that lie in the part.
        if min(int(whole[j] * parts), parts - 1) == part:
            values[j] = min(whole[j] * parts - part, 1.0 - 2.0**-53)
            places[count], numbers[j] = j, number
            count += 1
    return count


@inner
def _take_from(
    trial: int, views: Any, drawn: Any, uniforms: Any, stratified: bool, out: int, chosen: Any, numbers: Any
) -> int:
    """Sample in equal shares from the banks ``chosen``; returns which one turned out to be empty, or -1.

    ``numbers [B]`` become the bank of each place.
    """
    batch = uniforms.size
    values, places = sampling.values_of(drawn.ctypes.data, batch), sampling.places_of(drawn.ctypes.data, batch)
    whole = values.copy()
    for part in range(chosen.size):
        number = chosen[part]
        count = _list_places(whole, chosen.size, part, values, places, numbers, number)
        if count == 0:
            continue
        view = views[number]
        status = checked.take(trial, view, drawn, uniforms, stratified, out, count, chosen.size, part)
        if status != DONE:
            values[:] = whole
            return number
    return -1


@inner
def _weigh(views: Any, drawn: Any, beta: float, out: int, sums: Any, numbers: Any, is_own: bool, printed: bool) -> None:
    """Write sequences and weights of a batch from the banks ``numbers [B]``; ``is_own``: of a learner with a bank."""
    batch, total = numbers.size, sums.sum()
    priorities = sampling.priorities_of(drawn.ctypes.data, batch)
    banks, records, least = 0, 0, np.inf
    for number in range(sums.size):
        banks += sums[number] > 0.0
        records += load_i64(word_of(views[number], BANK) + COUNT)
    for j in range(batch):
        least = min(least, priorities[j])
    sampling.weigh(views[0], drawn, batch, beta, out)
    weights, largest = out + sampling.lines_of(_WORD * batch), np.float32(0.0)
    scale = (total / (records * least)) ** beta if is_own else 1.0
    for j in range(batch):
        store_i64(out + _WORD * j, load_i64(out + _WORD * j) * sums.size + numbers[j])
        factor = scale if printed else scale * (banks * sums[numbers[j]] / total)
        weight = np.float32(load_real(weights + _REAL * j, np.float32(0.0)) * factor)
        store_real(weights + _REAL * j, weight)
        largest = max(largest, weight)
    for j in range(0 if is_own else batch):
        at = weights + _REAL * j
        store_real(at, load_real(at, np.float32(0.0)) / largest)


@kernel()
def sample(
    trial: int, view: int, views: Any, uniforms: Any, stratified: bool, beta: float, bank: int, printed: bool, out: int
) -> int:
    batch = uniforms.size
    drawn = np.empty(sampling.DRAWN * batch, np.int64)
    sampling.begin(view, drawn, batch, uniforms, stratified)
    sums, numbers = np.empty(views.size), np.empty(batch, np.int64)
    chosen, count = np.empty(views.size, np.int64), 0
    for number in range(views.size):
        sums[number] = load_real(word_of(views[number], SUMS + word_of(views[number], HEIGHT)), 0.0)
        chosen[count] = number
        count += sums[number] > 0.0 and (bank < 0 or bank == number)
    while count > 0:
        # Invariant: chosen[:count] are the banks wanted of which none was found empty.
        empty = _take_from(trial, views, drawn, uniforms, stratified, out, chosen[:count], numbers)
        if empty < 0:
            _weigh(views, drawn, beta, out, sums, numbers, bank >= 0, printed)
            return DONE
        sums[empty], kept = 0.0, 0
        for j in range(count):
            chosen[kept] = chosen[j]
            kept += chosen[j] != empty
        count = kept
    return NOTHING


@kernel()
def update_priorities(
    trial: int, view: int, views: Any, sequence: Any, errors: Any, exponent: Any, present: Any
) -> int:
    if not are_finite(view, errors, errors.size, exponent):
        return NOT_FINITE
    batch, banks = errors.size, views.size
    places, tickets = np.empty(batch, np.int64), np.empty(batch, np.int64)
    theirs, kept = np.empty(batch), np.empty(batch, np.bool_)
    for number in range(banks):
        count = 0
        for j in range(batch):
            # Invariant: [:count] are those before j that belong to the bank, in their order: the last of equals wins.
            places[count], tickets[count], theirs[count] = j, sequence[j] // banks, errors[j]
            count += sequence[j] % banks == number
        some = kept[:count]
        checked.renew(trial, views[number], tickets[:count], theirs[:count], exponent, some)
        for j in range(count):
            present[places[j]] = some[j]
    return DONE


class BankedReplay(Replay):
    """Learners that each have a bank never wait for each other; inserts wait for one learner at most.

    A record's ``sequence`` is ticket * L + bank. ``written`` and ``len`` are those of all banks, and so is the largest
    priority "ever" given; the largest "current" one is that of the bank which the record goes to.
    """

    banked = True
    kernels: ClassVar = Kernels(insert, sample, update_priorities, checked.retrieve_priorities)

    def __init__(self, settings: Settings, memory: Memory | None = None, *, shared: bool = False) -> None:
        # Each replay takes turns of its own: the first from bank 0, others from any [Zhang2022, Alg. 6].
        first = 0 if memory is None else int.from_bytes(os.urandom(4), "little")
        self._turns = itertools.count(first)
        super().__init__(settings, memory, shared=shared)

    def _compile_operations(self) -> None:
        from numba import types  # noqa: PLC0415  # with the compiler

        reals, bools, number, views = types.float64[::1], types.boolean[::1], types.int64, types.int64[::1]
        at = self._views = np.array([bank.address for bank in self._banks])
        insert = self._entry(self.kernels.insert, views, number, number, reals, bools, reals)
        update = self._entry(self.kernels.update, views, types.int64[::1], reals, reals, bools)
        flag = types.boolean
        self._sample = self._entry(self.kernels.sample, views, reals, flag, types.float64, number, flag, number)
        self._insert = lambda view, *rest: insert(view, at, *rest)
        self._update = lambda view, *rest: update(view, at, *rest)

    def _check_insert(self, count: int, keep: NDArray[np.bool_], errors: int | None) -> None:
        if count > self._shape.slots and self.settings.banks > 1:
            raise ValueError(f"{count} records at once, a bank holds {self._shape.slots}")
        super()._check_insert(count, keep, errors)

    def _next_bank(self) -> int:
        return next(self._turns) % self.settings.banks

    def sample(
        self,
        batch: int,
        beta: float,
        rng: np.random.Generator | None = None,
        bank: int | None = None,
        *,
        weights: str = "exact",
        uniforms: NDArray[np.float64] | None = None,
        out: Outputs | None = None,
        distinct: bool = False,
    ) -> Batch:
        """B = ``batch`` records in equal shares from all banks, or from ``bank`` alone, as its learner samples.

        Within a bank they are sampled in proportion to their priorities. Where B is no multiple of the banks, chance
        decides which ones give the rest. ``weights`` are "exact", m S_j / S (1 / (N P(i)))^beta by Eq. 5.4 of
        [Zhang2022], the largest of a batch from all banks 1; or "printed", its approximation for equal sums. Exact ones
        make a gradient's expectation that of one tree for any beta; only for beta = 1 are they (1 / (N Q(i)))^beta,
        where Q(i) is the probability with which i is sampled. ``uniforms`` and ``out`` are those of any replay,
        and so is ``distinct``, but it needs a replay of one bank. ValueError for a bank that there is not; RuntimeError
        when there are no records, which are waited for as by any replay.
        """
        banks = self._open()
        if distinct:
            if len(banks) > 1:
                raise ValueError(f"distinct records are sampled from a replay of one bank, not of {len(banks)}")
            return super().sample(batch, beta, rng, uniforms=uniforms, out=out, distinct=True)
        number = _ALL_BANKS if bank is None else integer_at_least("bank", bank, 0)
        if number >= len(banks):
            raise ValueError(f"bank must be below {len(banks)}, the number of banks, not {bank}")
        printed = one_of("weights", weights, _WEIGHTS) == "printed"
        check_beta(beta)
        result, values = self._plan.outputs(batch, out), uniforms_of(batch, rng, uniforms)
        arguments = self._views, values, uniforms is None, beta, number, printed, result.address
        while batch and self._sample(banks[0].address, *arguments):
            mine, where = (banks, "") if bank is None else ([banks[number]], f" in bank {bank}")
            self._await_records(mine, where)
        return Batch(result.rows, result.weights, result.sequence)
